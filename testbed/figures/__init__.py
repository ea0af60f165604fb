"""The parts of `testbed reproduce` that are the same for any figure, a user's included: the gate before its
words, its finished runs, its stamp, the machine's load.
"""
