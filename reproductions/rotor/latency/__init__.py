"""Opera's latency: short flows over circuits that always join all units, while bulk traffic waits for direct
ones.
"""
