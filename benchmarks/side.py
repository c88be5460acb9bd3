"""`python -m benchmarks.side SIDE ROLE URL SIZE...`: one measurement in a process of its own."""

from __future__ import annotations

import importlib
import sys

SIDES = {
    "echomq": "benchmarks.echomq_side",
    "ceiling": "benchmarks.ceiling_side",
    "idle": "benchmarks.idle",
    "lanes": "benchmarks.lanes_side",
    "ping": "benchmarks.ping_side",
    "telemetry": "benchmarks.telemetry_side",
}

if __name__ == "__main__":
    side, role, url, *sizes = sys.argv[1:]
    # Imported only when it is its turn: what the other side needs is not to be found in this one's memory.
    importlib.import_module(SIDES[side]).run(role, url, *map(int, sizes))
