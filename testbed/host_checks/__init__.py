"""The features that this host has, known by trying them. Owns the list of features; runs mechanisms as
programs, imports none.
"""
