"""The live page: a testbed's status, or a record's contents, as one page in a browser; and its metrics.
Queries the daemon as every command does, and changes things only by the same requests. The only importer of
dash, werkzeug and prometheus_client.
"""
