"""Unit switches that are BMv2 processes: one `simple_switch` each, its tables, and the place that
it forms.
"""
