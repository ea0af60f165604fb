"""Figures 13 to 16: the simulations of section 6.4."""
