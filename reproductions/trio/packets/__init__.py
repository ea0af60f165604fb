"""Figures 14 to 16: packets that age out, by timeout; latency and rate by gradients a packet, by window."""
