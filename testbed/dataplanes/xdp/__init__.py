"""The XDP data plane: compile, attach, maps, places. The only importer of bcc (in `program`, at use); imports
no mininet.
"""
