"""What sums: programs and their control planes, a package for each kind."""
