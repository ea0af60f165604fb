"""The wire format: stated once in `spec`, everything else derived from it. Imports nothing above
`testbed.errors`.
"""
