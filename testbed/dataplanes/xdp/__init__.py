"""The XDP data plane: compiling, attaching, maps, places. The only importer of bcc (in `program`, at use);
imports no mininet.
"""
