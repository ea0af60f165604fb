"""Example jobs: scripts that users copy, each complete in itself."""
