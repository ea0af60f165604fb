"""What this host can do, found out by trying. Owns the list of features; runs mechanisms as programs, imports
none.
"""
