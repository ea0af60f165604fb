"""Linear programs with integers, on HiGHS, for whoever needs an optimum."""
