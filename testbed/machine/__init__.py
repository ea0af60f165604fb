"""The interface of a machine that a testbed is on: all that a daemon does there, and the data that crosses.
Its one implementation is testbed/local.
"""
