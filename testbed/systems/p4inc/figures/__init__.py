"""The paper's figures, run again: section VII-C by simulation, section VII-B on a running testbed."""
