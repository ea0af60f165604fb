"""Example jobs: scripts that users copy, each a program of its own."""
