"""The messages between a testbed's processes, and the data that `--json` prints: one type for each, one
module for each noun. Frozen data; `coding` converts it to and from JSON data, `schema` writes docs/schemas/.

Imports only msgspec and the standard library. Workers do not import it: a worker runs under its user's
interpreter, which may lack msgspec.
"""
