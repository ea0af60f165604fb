"""Run one command in an emulated host with the caller's terminal or pipes: the client's end, and the end that
runs the command. The daemon's part, which starts and ends it, is testbed/daemon/commands.py.

A command's standard input, output and error never pass through the daemon. The daemon makes a pair of
sockets, starts the keeper (keeper.py) in the host, as the user, with one of them, and passes the other to the
client (client.py). The client sends its three descriptors over it, and later signals. So root holds nothing
of a user's.
"""
