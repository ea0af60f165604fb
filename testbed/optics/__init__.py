"""Optical models: how long a change of circuits keeps which of them dark. Pure; imports nothing of the
project's but errors.
"""
