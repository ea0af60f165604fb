"""C that runs in worker processes; setup.py compiles it."""
