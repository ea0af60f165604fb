"""A command's means to reach a testbed: its folders, its sockets, and the Python environment that the command
runs in.
"""
