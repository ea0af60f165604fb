"""The commands between what was asked and what is printed: a function or a class for each, which the commands
and `from testbed import Testbed` both call. Prints nothing.
"""
