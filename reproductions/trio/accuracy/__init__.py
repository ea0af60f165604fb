"""A model that is trained beside slow workers: figure 12."""
