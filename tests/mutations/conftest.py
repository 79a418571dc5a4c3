"""Lets tests import the parts of `make audit-mutations`, which run outside this pytest."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "testbuild")]  # tests are no package: this finds their parts
