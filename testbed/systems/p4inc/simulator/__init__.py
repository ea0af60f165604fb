"""P4INC-AOI's simulator: jobs drawn as in section VII-C, and algorithm 1 with traffic as fluid
flows. Pure.
"""
