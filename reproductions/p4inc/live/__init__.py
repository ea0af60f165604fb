"""Figures 5 to 7 of P4INC-AOI: the experiment of section VII-B on a testbed that the command brings up, and
the model's prediction of it.
"""
