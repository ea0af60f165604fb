"""The optimizer node of LuWu (section 3.3 of its paper): it stores parameters and optimizer states on disks,
receives gradients and sends parameters (docs/luwu.md).
"""
