"""The OpenFlow controller, a process of its own.

Decisions are pure: `decide`, with `state`, `flows` and testbed.ocs. `conductor` carries them out; `app` and
`switch` communicate with switches.
"""
