"""Figure 12: training a model with slow workers."""
