"""The Python interface to a testbed: a function or class for each `testbed` command. The commands and `from
testbed import Testbed` both call it. Prints nothing.
"""
