"""Measurements whose figures the documents show; each module is a program."""
