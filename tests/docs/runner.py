"""Runs a page as its reader would: files are written, commands are typed, snippets are executed, in the page's order.

`python -m tests.docs.runner PAGE` does it in a new directory, on a private server that `ECHOMQ_URL` names. A page says
nothing special but in comments that its reader does not see:

| in the page | what is done |
| --- | --- |
| a `python` block that begins with `# name.py` | it is written to that file |
| any other `python` block | it is executed; `await` may stand at its top level; names last to the page's end |
| a `console` block | each `$ python ...` is run and must succeed; `&` leaves it running as `%1`, `%2`, ..., for `$ kill [-SIGNAL] %1` and `$ wait %1`; `$ sleep 1` is one |
| the lines below a command | they occur in its output, in this order; `...` stands for anything. One left running is waited for |
| `<!-- check: code -->` | executed like a block |
| `<!-- worker: arguments -->` | `python -m echomq.worker arguments` runs from here to the page's end |
| `<!-- open: name -->` | from here to the page's end everything is within `async with name:` |
| `<!-- skip: why -->`, `<!-- needs: module -->` | the next block is only compiled; or so if the module is not installed |
| `<!-- env: NAME=value -->` | for the commands and snippets from here on |

Other commands (`make`, `pip`, ...) are for the reader alone. `localhost:6379` means the private server.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import attrs
import trio

from echomq.embedded import open_server

COMMAND_LIMIT = 45.0
"""Seconds for one command: the tests' own limit is a minute."""
_PIECE = re.compile(
    r"^```(?P<language>[a-z]+)\n(?P<text>.*?)^```$|^<!-- (?P<directive>[a-z]+):(?P<value>.*?)-->$",
    re.MULTILINE | re.DOTALL,
)
_FILE = re.compile(r"# ([a-z_]+\.py)\b.*\n")
DIRECTIVES = frozenset({"check", "worker", "open", "skip", "needs", "env"})


class PageError(Exception):
    """The page is not true."""


@attrs.frozen
class Piece:
    """A block or a directive of a page."""

    kind: str
    text: str
    line: int


def read_page(text: str) -> list[Piece]:
    """Find the blocks and directives of a page, in order."""
    pieces = []
    for match in _PIECE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if match["language"] in {"python", "console"}:
            pieces.append(Piece(match["language"], match["text"], line + 1))
        elif match["directive"] in DIRECTIVES:
            pieces.append(Piece(match["directive"], inspect.cleandoc(match["value"]).strip(), line))
    return pieces


def has_examples(text: str) -> bool:
    """Tell whether there is anything in a page to run."""
    return any(piece.kind in {"python", "console"} for piece in read_page(text))


def missing_line(wanted: list[str], output: str) -> str | None:
    """Answer the first wanted line that the output does not have after those before it; None when all are there."""
    lines = iter(" ".join(line.split()) for line in output.splitlines())
    for want in wanted:
        pattern = re.escape(" ".join(want.split())).replace(re.escape("..."), ".*")
        if not any(re.search(pattern, line) for line in lines):
            return want
    return None


class Page:
    """A page on its way through its pieces."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self.names: dict[str, Any] = {"__name__": "__page__"}
        self.left_running: list[subprocess.Popen[str]] = []
        self.stack = AsyncExitStack()

    async def run(self, pieces: list[Piece]) -> None:
        """Do what the pieces say."""
        unless = ""
        async with self.stack:
            for piece in pieces:
                if piece.kind in {"skip", "needs"}:
                    installed = piece.kind == "needs" and importlib.util.find_spec(piece.text)
                    unless = "" if installed else piece.text
                    continue
                try:
                    await self._do(piece, only_compile=bool(unless))
                except BaseException as error:
                    error.add_note(f"in {self.name}, line {piece.line}")
                    raise
                unless = ""

    async def _do(self, piece: Piece, *, only_compile: bool) -> None:
        if piece.kind == "python" and (named := _FILE.match(piece.text)):
            compile(piece.text, named[1], "exec", dont_inherit=True)
            if not only_compile:
                (self.directory / named[1]).write_text(piece.text, encoding="utf-8")
        elif piece.kind in {"python", "check"}:
            await self._execute(piece, only_compile=only_compile)
        elif piece.kind == "console" and not only_compile:
            self._type(piece.text)
        elif piece.kind == "worker":
            self._start([sys.executable, "-m", "echomq.worker", *shlex.split(piece.text)], ["worker_started"])
        elif piece.kind == "open":
            await self.stack.enter_async_context(self.names[piece.text])
        elif piece.kind == "env":
            name, _, value = piece.text.partition("=")
            os.environ[name] = value

    async def _execute(self, piece: Piece, *, only_compile: bool) -> None:
        source = "\n" * (piece.line - 1) + piece.text  # so that a traceback names the page's own line
        code = compile(source, self.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        if only_compile:
            return
        made = eval(code, self.names)
        if inspect.iscoroutine(made):
            await made

    # --- commands ---------------------------------------------------------------------------

    def _type(self, text: str) -> None:
        command, wanted = "", list[str]()
        for line in [*text.splitlines(), "$ "]:
            if not line.startswith("$ "):
                wanted.append(line)
                continue
            if command:
                self._command(command, [each for each in wanted if each.strip()])
            command, wanted = line.removeprefix("$ ").partition("  #")[0].strip(), []

    def _command(self, command: str, wanted: list[str]) -> None:
        words = shlex.split(command)
        if words[0] == "kill":
            self._kill(words[1:])
        if words[0] == "wait":
            self._wait(words[1], wanted)
        if words[0] == "sleep":
            time.sleep(float(words[1]))
        if words[0] != "python":
            return
        words[0] = sys.executable
        if words[-1] == "&":
            self._start(words[:-1], wanted)
            return
        done = subprocess.run(
            words, cwd=self.directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=COMMAND_LIMIT, check=False
        )  # fmt: skip
        if done.returncode != 0 or (missing := missing_line(wanted, done.stdout)) is not None:
            what = f"it exited with {done.returncode}" if done.returncode else f"no line {missing!r}"
            raise PageError(f"$ {command}\n{done.stdout}\n{what}")

    def _start(self, words: list[str], wanted: list[str]) -> None:
        path = self.directory / f"background-{len(self.left_running) + 1}.log"
        with path.open("w", encoding="utf-8") as log:
            process = subprocess.Popen(words, cwd=self.directory, stdout=log, stderr=subprocess.STDOUT, text=True)
        self.left_running.append(process)
        self.stack.callback(self._end, process)
        until = time.monotonic() + COMMAND_LIMIT
        while (missing := missing_line(wanted, path.read_text(encoding="utf-8"))) is not None:
            if process.poll() is not None or time.monotonic() > until:
                raise PageError(f"$ {shlex.join(words)} &\n{path.read_text(encoding='utf-8')}\nno line {missing!r}")
            time.sleep(0.02)

    def _kill(self, words: list[str]) -> None:
        name = words[0].removeprefix("-") if len(words) > 1 else "TERM"
        number = int(name) if name.isdecimal() else signal.Signals[f"SIG{name.removeprefix('SIG')}"]
        process = self._left_running(words[-1])
        process.send_signal(number)
        if number != signal.SIGSTOP:
            process.wait(COMMAND_LIMIT)

    def _wait(self, which: str, wanted: list[str]) -> None:
        code = self._left_running(which).wait(COMMAND_LIMIT)
        output = (self.directory / f"background-{which.removeprefix('%')}.log").read_text(encoding="utf-8")
        if code != 0 or missing_line(wanted, output) is not None:
            raise PageError(f"$ wait {which}\n{output}\nit exited with {code}, or lacks one of {wanted}")

    def _left_running(self, which: str) -> subprocess.Popen[str]:
        return self.left_running[int(which.removeprefix("%")) - 1]

    @staticmethod
    def _end(process: subprocess.Popen[str]) -> None:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(COMMAND_LIMIT)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


def main(path: str) -> None:
    """Run the page at a path."""
    with open_server() as server, tempfile.TemporaryDirectory() as directory:
        text = Path(path).read_text(encoding="utf-8")
        for scheme in ("redis", "valkey"):
            text = text.replace(f"{scheme}://localhost:6379", server.url.replace("redis://", f"{scheme}://"))
        os.environ |= {"ECHOMQ_URL": server.url, "PYTHONUNBUFFERED": "1"}
        os.chdir(directory)
        sys.path.insert(0, directory)
        trio.run(Page(path, Path(directory)).run, read_page(text))


if __name__ == "__main__":
    main(str(Path(sys.argv[1]).resolve()))
