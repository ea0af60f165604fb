"""One command in an emulated host, at the terminal or the pipes of whoever asked: the end that asks and the
end that runs it. The daemon's part, which starts and ends it, is testbed/daemon/commands.py.

A command's own standard input, output and error never pass through the daemon. The daemon makes a pair of
sockets, starts the keeper (keeper.py) in the host as the user with one of them, and hands the other to the
client (client.py), which sends its three descriptors over it, then signals. So nothing of a user's is held by
root.
"""
