"""When jobs run, with which circuits, bandwidth and switches: the model of P4INC-AOI's section IV and
policies over it. Pure.
"""
