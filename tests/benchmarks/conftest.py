"""Lets tests import the parts of `make bench-trace`, which run outside this pytest."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "trace"))  # tests are no package: this finds it
