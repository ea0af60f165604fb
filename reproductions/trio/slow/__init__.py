"""Figure 13: iteration time with workers that are slowed on purpose."""
