"""Let tests import the modules of `benchmarks/paper` as its scripts do."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks" / "paper"))
