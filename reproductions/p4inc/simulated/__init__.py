"""Table I and the figures of section VII-C, by simulation."""
