"""The demonstration: all digests right though a worker is killed, odd names, files that vanish, an interruption."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import anyio
import pytest

from echomq.demo.jobs import Digest, Sum, sum_directory, sum_tree
from echomq.demo.listing import list_tree, show
from echomq.demo.report import verdict
from echomq.demo.run import Tally, by_directory, run
from echomq.flows import flow

COMMAND = (sys.executable, "-m", "echomq.demo")
ODD = (b"a line\nand another", b"not utf-8 \xff\xfe", b" ", "snowman ☃".encode(), b"[red]markup[red]", b"-n", b"'\"\\")


class _Quiet:
    def say(self, text: str) -> None:
        pass

    def begin(self, what: str, total: int) -> None:
        pass

    def advance(self) -> None:
        pass


def _demo(*arguments: str | bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, timeout=50, check=False)


def _children(pid: int) -> set[int]:
    """Answer all processes below one, by the parents that /proc names."""
    parents = {}
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(each.parent.name)] = int(each.read_text().rsplit(")", 1)[1].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    found: set[int] = set()
    while more := {child for child, parent in parents.items() if parent in found | {pid}} - found:
        found |= more
    return found


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _make_tree(root: Path, *, files: int, size: int) -> None:
    for number in range(files):
        path = root / f"{number % 7}" / f"{number}.bin"
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as file:
            file.write(b"%d" % number)
            file.truncate(size)


@pytest.mark.slow
def test_demo_recovers_the_jobs_of_the_worker_it_kills(tmp_path: Path) -> None:
    """A worker is killed while it holds jobs; they are recovered, each stall is counted, and all digests agree."""
    _make_tree(tmp_path, files=150, size=4 << 20)
    listing = list_tree(str(tmp_path))
    tally = anyio.run(run, listing, _Quiet(), backend="trio")
    assert verdict(listing, tally), (tally.failures, tally.mismatches)
    assert len(tally.digests) == 150
    assert tally.killed is not None
    assert tally.held
    assert tally.held <= tally.recovered
    assert tally.stalled >= len(tally.held)
    # Seven directories have been summed up by jobs of their own, and these by another.
    assert tally.total == Sum(150, 150 * (4 << 20))
    assert tally.tree is not None
    assert (tally.tree.task, tally.tree.state, tally.tree.size) == ("sum_tree", "completed", 1 + 7 + 22 + 22 + 22 + 21)
    assert {each.task for each in tally.tree.children} == {"sum_directory"}


@pytest.mark.slow
def test_demo_command_takes_any_name_and_passes_over_what_is_no_file(tmp_path: Path) -> None:
    """Newlines, bytes that are no text, and markup in names are files as others; links and sockets are passed over."""
    for name in ODD:
        (tmp_path / os.fsdecode(name)).write_bytes(name)
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "left.pyc").write_bytes(b"")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(tmp_path / "socket"))
        done = _demo(os.fsencode(tmp_path))
    output = done.stdout.decode(errors="surrogateescape")
    assert done.returncode == 0, output + done.stderr.decode()
    assert f"{len(ODD)} of {len(ODD)} digests are there and agree" in output
    assert re.search(r"passed over \(links, sockets, ...\)\W+2\W", output)
    assert re.search(rf"summed up by jobs\W+{len(ODD)}, {sum(map(len, ODD))}\W", output)
    assert re.search(
        r"^sum_tree completed .*\n└── \. sum_directory completed .*\n    ├── 0 checksum completed ",
        output,
        re.MULTILINE,
    )


@pytest.mark.slow
def test_demo_counts_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """A file that has vanished when its job runs is a readable failure, and the verdict says so."""
    for name in ("stays", "goes"):
        (tmp_path / name).write_bytes(b"content")
    listing = list_tree(str(tmp_path))
    (tmp_path / "goes").unlink()
    tally = anyio.run(run, listing, _Quiet(), backend="trio")
    assert not verdict(listing, tally)
    assert set(tally.digests) == {os.fsencode(tmp_path / "stays")}
    [why] = tally.failures.values()
    assert "No such file" in why
    assert "FileNotFoundError" in why
    assert tally.total == Sum(1, len(b"content"))  # its directory is summed up without it
    assert tally.tree is not None
    assert [each.state for each in tally.tree.children[0].children] == ["dead", "completed"]


def test_demo_of_an_empty_directory_is_content(tmp_path: Path) -> None:
    """No files: nothing is started, the table shows zeros, and the exit code is 0."""
    done = _demo(str(tmp_path))
    assert done.returncode == 0, done.stderr.decode()
    assert b"0 of 0 digests" in done.stdout


@pytest.mark.parametrize("name", ["missing", "file"])
def test_demo_of_no_directory_is_one_clear_error(tmp_path: Path, name: str) -> None:
    """A directory that is not there, or is a file, gives one line and exit code 2."""
    (tmp_path / "file").write_bytes(b"")
    done = _demo(str(tmp_path / name))
    assert done.returncode == 2
    [line] = done.stderr.decode().splitlines()
    assert line.startswith("error: ")
    assert name in line


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_demo_interrupted_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    """A signal in the middle ends workers and server, and the exit code names it."""
    _make_tree(tmp_path, files=100, size=8 << 20)
    # Whoever runs the tests in the background has SIGINT ignored, and a child inherits that.
    heed = partial(signal.signal, number, signal.SIG_DFL)
    with subprocess.Popen([*COMMAND, tmp_path], stdout=subprocess.PIPE, text=True, preexec_fn=heed) as demo:  # noqa: PLW1509
        assert demo.stdout is not None
        for line in demo.stdout:
            if line.startswith("jobs "):
                break
        below = _children(demo.pid)
        assert len(below) >= 3  # a server and two workers, one of which may just have been killed
        demo.send_signal(number)
        rest = demo.stdout.read()
        code = demo.wait(30)
    assert code == 128 + number
    assert f"interrupted by {number.name}" in rest
    deadline = time.monotonic() + 10
    while any(map(_alive, below)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not [pid for pid in below if _alive(pid)]


def test_listing_shows_any_name_as_one_line() -> None:
    """What is printable is shown as it is, everything else as Python spells it."""
    assert show("plain ☃".encode()) == "plain ☃"
    assert "\n" not in show(b"two\nlines")
    assert show(b"\xff") == r"'\xff'"


def test_directories_have_names_of_their_own_whatever_theirs_are(tmp_path: Path) -> None:
    """A path that is no text, or is too long, gives way to a number, and to none that is another directory's path."""
    odd = [*ODD, b"1", b"x" * 200, b"'not utf-8 \\udcff\\udcfe'"]
    for name in odd:
        directory = tmp_path / os.fsdecode(name)
        directory.mkdir()
        (directory / "file").write_bytes(b"")
    (tmp_path / "file").write_bytes(b"")
    listing = list_tree(str(tmp_path))
    named = by_directory(listing)
    assert len(named) == len(odd) + 1
    assert sorted(path for files in named.values() for path in files) == listing.files
    assert {".", "1", "snowman ☃"} < named.keys()
    made = flow(sum_tree.call(), {name: sum_directory.call() for name in named})  # they are names of children
    assert len(made.children) == len(named)


def test_verdict_needs_every_digest(tmp_path: Path) -> None:
    """A file without a digest is not content, whoever lost it; nor is a sum that is not that of the digests."""
    (tmp_path / "file").write_bytes(b"")
    listing = list_tree(str(tmp_path))
    assert not verdict(listing, Tally())
    tally = Tally(digests={listing.files[0]: Digest("", 5, 0, 1)}, total=Sum(1, 5))
    assert verdict(listing, tally)
    tally.total = Sum(1, 4)
    assert not verdict(listing, tally)
