"""The Lua layer as values: scripts assembled from `lua/` with their includes, and their headers read.

A script file begins with comment lines `-- name: value` (its header, described in `lua/README.md`). Assembly puts a
shebang with the header's flags first, then the constants, `include/base.lua`, the named includes, each once and in the
order named, and the body. The result is one text whose SHA-1 names it on the server, so nothing is ever sent twice.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import Final, final

import attrs

from echomq.protocol.version import PROTOCOL, parse

_HEADER: Final = re.compile(r"-- ([a-z_]+):[ ]?(.*)")
_DEFINES: Final = re.compile(r"^-- defines:([^;\n]*)", re.MULTILINE)
_LOCAL: Final = re.compile(r"^local (?P<function>function )?(?P<names>[\w, ]+?)(?=\(| =)", re.MULTILINE)
_WORD: Final = re.compile(r"\w+")
_FOLDER: Final = files("echomq") / "lua"


@final
@attrs.frozen(kw_only=True)
class Header:
    """What a script's header says, each list in the file's order."""

    verb: str
    """The verb, which is the file's name."""
    purpose: str
    """What it does, a sentence."""
    section: str
    """Where the design speaks of it."""
    flags: tuple[str, ...]
    """The shebang's flags: `allow-oom` (runs on a full server), `no-writes` (a read), or none."""
    include: tuple[str, ...]
    """The includes, in order."""
    flows: tuple[str, ...]
    """The includes after those, in order, that are made only in a queue that has flows."""
    keys: tuple[str, ...]
    """Each key it may touch, with its type; all but `meta` and `void` are derived from KEYS[1]."""
    argv: tuple[str, ...]
    """Each leading argument, with its unit."""
    item: tuple[str, ...]
    """Each argument of an item, with its unit; empty for a verb that has no items."""
    reply: str
    """The reply's shape."""
    verdicts: tuple[str, ...]
    """The class words of an item's verdict that are not refusals."""
    refusals: tuple[str, ...]
    """The class words of refusals, of an item or of the call."""
    events: tuple[str, ...]
    """The events it may emit."""
    cost: str
    """Its cost."""
    bound: str
    """What bounds its work."""
    moves: tuple[str, ...]
    """The moves it may make, as `from -> to`."""


@final
@attrs.frozen(kw_only=True)
class Script:
    """One verb's script, ready to be loaded."""

    verb: str
    """The verb."""
    source: str
    """The whole text, as SCRIPT LOAD takes it."""
    sha: str
    """The SHA-1 of the source, in hexadecimal: what EVALSHA takes."""
    header: Header
    """What its header says."""


def _words(value: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in value.split(";") if word.strip())


def parse_header(text: str) -> Header:
    """Read the header at the top of a script's text.

    Raises:
        ValueError: A line is missing, unknown or there twice.
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = _HEADER.fullmatch(line)
        if match is None:
            break
        if match[1] in found:
            msg = f"the header names {match[1]!r} twice"
            raise ValueError(msg)
        found[match[1]] = match[2]
    found.setdefault("item", "")
    found.setdefault("flows", "")
    names = {field.name for field in attrs.fields(Header)}
    if names != found.keys():
        msg = f"the header lacks {sorted(names - found.keys())} or has unknown {sorted(found.keys() - names)}"
        raise ValueError(msg)
    lists = {"keys", "argv", "item", "verdicts", "refusals", "events", "moves"}
    values: dict[str, object] = {name: _words(text) if name in lists else text for name, text in found.items()}
    values["flags"] = tuple(found["flags"].split())
    for name in ("include", "flows"):
        values[name] = tuple(each.strip() for each in found[name].split(",") if each.strip())
    return Header(**values)  # type: ignore[arg-type]  # each field is a str or a tuple, as chosen above


def _body(text: str) -> str:
    """Drop the header: comments are not worth their bytes on the server."""
    lines = text.splitlines()
    start = next((at for at, line in enumerate(lines) if not line.startswith("-- ")), len(lines))
    return "\n".join(lines[start:]).strip() + "\n"


def _include(name: str) -> str:
    return (_FOLDER / "include" / f"{name}.lua").read_text(encoding="utf-8")


def _of_flows(names: tuple[str, ...]) -> tuple[str, str]:
    """Write includes that are made only in a queue that has flows: what stands before all others, and what after them.

    What they define is declared first, for whoever refers to it, and is nil in a queue without flows: there it costs
    nothing. Within the block, a line that would define it anew as `local` gives it its value.
    """
    if not names:
        return "", ""
    texts = [_include(name) for name in names]
    lists = [match[1] for text in texts if (match := _DEFINES.search(text))]
    defined = {name for words in lists for name in _WORD.findall(words)}

    def outer(match: re.Match[str]) -> str:
        named = set(_WORD.findall(match["names"]))
        return f"{match['function'] or ''}{match['names']}" if named <= defined else match[0]

    body = _LOCAL.sub(outer, "".join(map(_body, texts)))
    declared = "\n".join(f"local {name} -- luacheck: ignore 211 221" for name in sorted(defined))
    return declared, f"if FLOWS or MAY_FLOW then\n{body}end"


def assemble(verb: str, text: str, *, version: str = PROTOCOL) -> Script:
    """Assemble a verb's script from its file's text.

    Args:
        verb: The verb.
        text: The content of `lua/<verb>.lua`, or a changed copy of it.
        version: The protocol's version that the script speaks.
    """
    header = parse_header(text)
    parts = [
        f"#!lua flags={','.join(header.flags)}" if header.flags else "#!lua",
        f"local VERB, VERSION, MAJOR = '{verb}', '{version}', '{parse(version)[0]}'",
    ]
    declared, of_flows = _of_flows(header.flows)
    parts += (_body(_include("base")), declared)
    parts += (_body(_include(name)) for name in header.include)
    source = "\n".join([*filter(None, (*parts, of_flows)), _body(text)])
    sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    return Script(verb=verb, source=source, sha=sha, header=header)


@cache
def load(verb: str) -> Script:
    """Assemble a verb's script from the files of this package, once.

    Raises:
        FileNotFoundError: There is no such verb.
    """
    return assemble(verb, (_FOLDER / f"{verb}.lua").read_text(encoding="utf-8"))


ALL_VERBS: Final = tuple(
    sorted(entry.name.removesuffix(".lua") for entry in _FOLDER.iterdir() if entry.name.endswith(".lua"))
)
"""Every verb that has a script."""
