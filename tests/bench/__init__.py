"""Measurements whose figures the documents show; each module is a program."""

import os

os.environ.setdefault("OPTINC_RUNS", "off")  # a benchmark's runs do not belong among the user's records
