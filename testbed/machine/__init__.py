"""The interface of the machine that a testbed runs on: all operations that the daemon performs there, and the
data exchanged. testbed/local is its one implementation.
"""
