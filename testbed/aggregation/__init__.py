"""A job's forest of places, and the resources that it holds at each, for any system and data plane. Pure."""
