"""Systems of users, for tests: each a file that `--sync` names."""
