"""Torch's own distributed tests, by `inc` and by gloo (`python -m tests.torch`)."""
