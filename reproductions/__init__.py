"""The figures of the papers, run again by `testbed reproduce`, a folder for each paper; and beside them what
figures of any paper share. Users of the library: nothing of the testbed imports them, and `testbed reproduce`
finds them by entry points (setup.py, `testbed.papers`).
"""
