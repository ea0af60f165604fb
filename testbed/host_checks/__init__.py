"""The features that this host has, determined by trying them. Owns the list of features; runs mechanisms as
programs, imports none.
"""
