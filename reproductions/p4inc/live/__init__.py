"""Figures 5 to 7 of P4INC-AOI: the experiment of its section VII-B on a testbed that this brings up, and its
prediction.
"""
