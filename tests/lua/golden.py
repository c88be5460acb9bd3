"""Write the golden file anew: `python -m tests.lua.golden`."""

from __future__ import annotations

import json
from pathlib import Path

from echomq.transitions import ALL_VERBS, load

if __name__ == "__main__":
    shas = {verb: load(verb).sha for verb in ALL_VERBS}
    (Path(__file__).parent / "golden.json").write_text(json.dumps(shas, indent=2) + "\n", encoding="utf-8")
