"""The papers' figures, reproduced by `testbed reproduce`: a package for each paper, and the modules that
figures of any paper share. They use the library; nothing in `testbed` imports them. `testbed reproduce` finds
them by entry points (setup.py, `testbed.papers`).
"""
