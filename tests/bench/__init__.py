"""Measurements whose figures the documents show; each module is a program."""

import os

os.environ.setdefault("OPTINC_RUNS", "off")  # what is measured is no record of whoever measures
