"""ToR switches that are BMv2 processes: one `simple_switch` a unit, its tables, and the aggregator that they
make.
"""
