"""In-network computing, whatever the engine: who takes part in a job, and which slots it has. Pure."""
