"""Optical models: for how long each circuit is dark when circuits change. Pure; of the project, imports only
errors and keys.
"""
