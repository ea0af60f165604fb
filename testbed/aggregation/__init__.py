"""A job's forest of places that sum, and what each is given, whatever the system and the data plane. Pure."""
