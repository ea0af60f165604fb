"""Figures 10 to 15, predicted by a model of the paper's hardware."""
