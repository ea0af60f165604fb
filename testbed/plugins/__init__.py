"""Systems, policies, papers and figures by name, as systems say them; and a class that a user names. The one
room beneath the commands that loads what is above it, or is not the project's.
"""
