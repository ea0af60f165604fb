"""Training scripts for an optimizer node."""
