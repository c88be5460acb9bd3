"""Tables of the reference that are made from the code, so that they cannot fall behind it.

Two directives for MyST pages:

`{script-headers}`
    A section a script: purpose, keys, arguments, replies, from the headers under `src/echomq/lua/`.

`{state-moves}`
    The moves a job may make, from the same headers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import attrs
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from echomq.transitions import scripts

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def _table(head: list[str], rows: list[list[str]]) -> nodes.table:
    table = nodes.table()
    group = nodes.tgroup(cols=len(head))
    table += group
    for _ in head:
        group += nodes.colspec(colwidth=1)

    def row(cells: list[str]) -> nodes.row:
        made = nodes.row()
        for cell in cells:
            made += nodes.entry("", nodes.paragraph("", cell))
        return made

    group += nodes.thead("", row(head))
    group += nodes.tbody("", *(row(cells) for cells in rows))
    return table


class ScriptHeaders(SphinxDirective):
    """Every script's header, as one section each; the anchor is `script-<verb>`."""

    has_content: ClassVar[bool] = False

    def run(self) -> list[nodes.Node]:
        """Make the sections."""
        made: list[nodes.Node] = []
        for verb in scripts.ALL_VERBS:
            header = scripts.load(verb).header
            section = nodes.section(ids=[f"script-{verb.replace('_', '-')}"], names=[verb])
            section += nodes.title("", verb)
            section += nodes.paragraph("", header.purpose)
            values = attrs.asdict(header, filter=lambda field, _: field.name not in {"verb", "purpose"})
            rows = [[name, value if isinstance(value, str) else "; ".join(value)] for name, value in values.items()]
            section += _table(["what", "value"], [[name, value or "-"] for name, value in rows])
            made.append(section)
        return made


class StateMoves(SphinxDirective):
    """The moves a job may make, a row a verb and move."""

    has_content: ClassVar[bool] = False

    def run(self) -> list[nodes.Node]:
        """Make the table."""
        rows = []
        for verb in scripts.ALL_VERBS:
            for move in scripts.load(verb).header.moves:
                before, _, after = (word.strip() for word in move.partition("->"))
                rows.append([verb, before, after])
        return [_table(["verb", "from", "to"], rows)]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("script-headers", ScriptHeaders)
    app.add_directive("state-moves", StateMoves)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
