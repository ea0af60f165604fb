"""Load systems, policies, papers' figures, data-plane programs and optical models by name, and classes that a
user names. The only package below the commands that loads code from layers above it or from outside the
project.
"""
