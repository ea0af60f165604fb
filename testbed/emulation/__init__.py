"""The emulated fabric: namespaces, links, switches and hosts. The only importer of Mininet."""
