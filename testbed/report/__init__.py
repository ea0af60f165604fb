"""Results as JSON, tables and plots. Reads what `testbed run` wrote; measures nothing itself."""
