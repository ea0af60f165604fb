"""LuWu and its baselines, live: jobs that move the bytes of small OPT shapes over scaled links."""
