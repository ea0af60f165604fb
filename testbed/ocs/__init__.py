"""The optical circuit switch as pure functions: circuits, plans, timetables, and routes over circuits."""
