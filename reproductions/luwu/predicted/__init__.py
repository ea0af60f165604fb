"""Figures 10 to 15, as a model of the paper's hardware predicts them."""
