"""P4INC-AOI's policies: algorithms 2 and 3, the benchmark of section VII-A, and TW+, this project's own.
Pure.
"""
