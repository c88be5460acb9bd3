"""Measure echomq against the raw ceiling, on a private server: `python benchmarks/bench.py`, or `make bench`.

See README.md beside this file for what is measured and how to read it.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measure import main

if __name__ == "__main__":
    main()
