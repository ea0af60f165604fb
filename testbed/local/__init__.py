"""`Local`: the machine that the daemon itself is on, the one implementation of testbed/machine/interface.py.

It is put together of emulation and data planes, and knows nothing of jobs, queue or policies.
"""
