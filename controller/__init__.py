"""The OpenFlow controller: its own process.

Decisions are in testbed.ocs and `policy`; `app` turns events into calls and results into messages.
"""
