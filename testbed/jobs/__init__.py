"""A job's life: its placement, processes, services and result."""
