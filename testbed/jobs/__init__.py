"""The life of a job: its place, its processes, its services and its result."""
