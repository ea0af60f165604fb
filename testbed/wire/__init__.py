"""The wire format: `spec` states it once, everything else derives from it. Of the project, imports only
`testbed.errors`.
"""
