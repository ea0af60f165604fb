"""The end of a worker: the torch backend `inc`, the host endpoint, and example jobs."""
