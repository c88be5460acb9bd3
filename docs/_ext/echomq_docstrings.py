"""Docstrings as this project writes them, made ready for napoleon.

- A promise (`Server effect`, `Cancellation`, `Delivery`) may stand on one line with its text, as a paragraph of its own.
- The docstring of an attribute or property is a sentence, also when a colon is in it: no type stands before it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_PROMISE = re.compile(r"((?:Server effect|Cancellation|Delivery)(?:, (?:Cancellation|Delivery))*): (.+)")


def prepare(_app: Sphinx, what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Rewrite the lines in place."""
    made: list[str] = []
    inside = False
    for line in lines:
        promise = _PROMISE.fullmatch(line)
        if promise is not None:
            made += ["", f"**{promise[1]}**: {promise[2]}"]
        elif inside and line.startswith("    "):
            made.append(line.strip())
        else:
            made.append(line)
        inside = promise is not None or (inside and line.startswith("    "))
    if what in {"attribute", "property", "data"} and made:
        # napoleon looks for a type before a colon, in the first line only, and not if nothing stands behind it there.
        made[:1] = made[0].split(" ", 1)
    lines[:] = made


def setup(app: Sphinx) -> dict[str, bool]:
    """Come before napoleon, whose priority is 500."""
    app.connect("autodoc-process-docstring", prepare, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
