"""Format results as JSON, tables and plots. Reads the results of `testbed run`; measures nothing itself."""
