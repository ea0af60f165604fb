"""The emulated fabric: namespaces, links, switches and hosts, and the only importer of Mininet."""
