"""The live page: what a testbed says of itself, and what a record has, as one page in a browser; and its
metrics. Asks the daemon as every command does, and changes nothing but by the same requests. The only
importer of dash, werkzeug and prometheus_client.
"""
