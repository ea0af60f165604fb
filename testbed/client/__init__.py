"""The things that a command needs to talk to a testbed: its folders, its sockets, the environment
that it runs in.
"""
