"""Limit how much of the machine's cores the processes at a host may use, by cgroups of either version."""
