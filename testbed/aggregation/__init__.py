"""Who sums what, whatever the system and the data plane: a job's forest of places, and what each is given.
Pure.
"""
