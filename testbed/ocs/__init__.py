"""The optical circuit switch as pure functions: circuits, plans, latency, routes over them."""
