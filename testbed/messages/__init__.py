"""The messages between a testbed's processes, and what `--json` prints: a type for each, a module for each
noun. Frozen data; `coding` makes JSON's data of it and back, `schema` writes docs/schemas/.

Imports msgspec and the standard library alone. No worker imports it: a worker runs under its user's
interpreter, which need not have msgspec.
"""
