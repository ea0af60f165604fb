"""The optimizer node of LuWu (section 3.3 of its paper), between a source of gradients and a sink of
parameters: docs/luwu.md.
"""
