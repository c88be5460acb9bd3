"""What README.md and the pages of the documentation show works: it is run as a reader would run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.runner import has_examples, missing_line, read_page

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts)]


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=str(path.relative_to(ROOT))) for path in PAGES if has_examples(path.read_text("utf-8"))],
)
def test_page_examples_work(path: Path) -> None:
    """Every file, command and snippet of the page does what the page says, in the page's order."""
    command = [sys.executable, "-W", "error", "-m", "tests.docs.runner", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    if done.returncode != 0:
        pytest.fail(f"{path.relative_to(ROOT)}\n{done.stdout}\n{done.stderr}", pytrace=False)


def test_read_page_finds_blocks_and_directives() -> None:
    """Blocks and directives come in order, with the line where their text begins."""
    page = "a\n```python\nx = 1\n```\n<!-- check: assert x -->\n```text\nno\n```\n```console\n$ python a.py\n```\n"
    assert [(piece.kind, piece.text, piece.line) for piece in read_page(page)] == [
        ("python", "x = 1\n", 3),
        ("check", "assert x", 5),
        ("console", "$ python a.py\n", 10),
    ]


def test_missing_line_keeps_the_order() -> None:
    """A line that stands before the one wanted earlier does not count; dots stand for anything."""
    assert missing_line(["b ... d", "e"], "a\nb  c d\ne\n") is None
    assert missing_line(["e", "b"], "b\ne\n") == "b"
