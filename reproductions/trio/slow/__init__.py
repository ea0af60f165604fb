"""Workers that are slow on purpose: figure 13."""
