"""The parts that figures of any paper share: sweeps, runs in several processes, claims and their words."""
