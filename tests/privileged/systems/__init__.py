"""Users' systems, for tests: each is a file that `--sync` names."""
