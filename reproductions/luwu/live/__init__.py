"""LuWu and its baselines, live: a byte-level model of small OPT shape on scaled links."""
