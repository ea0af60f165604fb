"""P4INC-AOI's policies, algorithms 2 and 3 and the benchmark of section VII-A, and TW+, which is the
project's own. Pure.
"""
