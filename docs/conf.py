"""Sphinx: builds without a network, nitpicky, and with warnings as errors (`make docs`)."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "echomq"
author = "The echomq maintainers"
copyright = "2026, The echomq maintainers"
release = installed_version("echomq")
version = release

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "echomq_docstrings",
    "echomq_reference",
    "echomq_tables",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "echomq"
html_copy_source = False

# A word between single backticks is a literal, in docstrings as in Markdown.
default_role = "literal"

nitpicky = True
# Other projects' names are not looked up: their inventories would need a network, and a build must not.
nitpick_ignore_regex = [
    (r"py:.*", r"(anyio|asyncio|attr|attrs|cattrs|collections|concurrent|contextlib|datetime|decimal|enum)(\..*)?"),
    (
        r"py:.*",
        r"(hiredis|orjson|os|pathlib|redis|ssl|structlog|trio|types|typing|typing_extensions|uuid|zoneinfo)(\..*)?",
    ),
    # Private modules, whose objects are mentioned by annotations only, and classes that are imported for annotations.
    (r"py:.*", r"echomq\._.*"),
    (r"py:.*", r"echomq\.transitions\.read_flow\.Child"),
    (r"py:.*", r"echomq\.sync\.handles\..*"),  # shown as of `echomq.sync`
    (r"py:.*", r"echomq\.transitions\.read_flow\.Child"),  # told where it is used: another `Child` is of every program
    (
        r"py:.*",
        r"Random|CancelOutcome|CollectorRegistry|Channels|Closed|EventLevel|FlowChild|Group|LimitScope|Missed|Node|Overlap|DefineOutcome|Since|StampedJob|WireClient",
    ),
    # Builtins, the names of a stub, and type variables.
    (r"py:.*", r"(Any|BaseException|Exception|RuntimeError|TypeError|ValueError|OSError|TimeoutError|KeyError|None)"),
    (
        r"py:.*",
        r"(bool|bytes|dict|float|frozenset|int|list|object|set|str|tuple|type|timedelta|dt\.\w+|Ellipsis|\.\.\.)",
    ),
    (r"py:.*", r"(.*\.)?_?[A-Z]([a-z]*_co|_contra)?"),
]

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
# The three promises that docstrings make beside Google's sections.
napoleon_custom_sections = ["Server effect", "Cancellation", "Delivery"]

# Examples in pages are run as they stand, without state left over from the page before.
doctest_test_doctest_blocks = "default"
doctest_global_setup = "from __future__ import annotations"
