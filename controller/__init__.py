"""The OpenFlow controller: its own process.

Decisions are pure: `decide`, over `state`, `flows` and testbed.ocs. `conductor` carries them out; `app` and
`switch` are the conversation with switches.
"""
