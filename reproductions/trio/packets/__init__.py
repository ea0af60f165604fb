"""Figures 14 to 16: time-outs of block records, by timeout; latency and rate, by gradients per packet
and window.
"""
