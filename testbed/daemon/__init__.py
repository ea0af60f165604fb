"""The process that is a testbed (the daemon), and the process that supervises it."""
