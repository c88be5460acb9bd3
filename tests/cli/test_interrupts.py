"""Commands at a real terminal, and the signals that end them."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from echomq import sync
from tests.cli.test_recovery import bury

PATIENCE = 20.0


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, *words: str) -> None:
        self.master, slave = pty.openpty()
        self.seen = b""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "echomq", *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm"},
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - the terminal that Ctrl-C is typed at
        )
        os.close(slave)

    def read_until(self, text: bytes) -> None:
        """Wait for some words."""
        end = time.monotonic() + PATIENCE
        while text not in self.seen:
            assert time.monotonic() < end, self.seen
            if select.select([self.master], [], [], 0.1)[0]:
                self.seen += os.read(self.master, 65536)

    def ended(self) -> int:
        """Wait for its end, and answer its code."""
        code = self.process.wait(PATIENCE)
        try:
            while select.select([self.master], [], [], 0)[0] and (some := os.read(self.master, 65536)):
                self.seen += some
        except OSError:  # nobody has the other end any more
            pass
        return code


@contextmanager
def terminal(*words: str) -> Iterator[Terminal]:
    """Run a command."""
    it = Terminal(*words)
    try:
        yield it
    finally:
        it.process.kill()
        it.process.wait()
        os.close(it.master)


@pytest.mark.parametrize("words", ["cancel --task x", "obliterate"])
@pytest.mark.parametrize(("typed", "code"), [(b"\x03", 130), (b"\x04", 1), (b"n\n", 1)])
def test_question_may_be_broken_off(server_url: str, queue_name: str, words: str, typed: bytes, code: int) -> None:
    """By Ctrl-C, the end of the input, or no: nothing was done, and it says so."""
    queue = sync.Client(server_url).queue(queue_name)
    queue.enqueue(b"", task="x")
    with terminal(*words.split(), "-q", queue_name, "--url", server_url) as it:
        it.read_until(b"[y/N]")
        os.write(it.master, typed)
        assert it.ended() == code
        assert b"nothing was done" in it.seen
        assert b"Fatal" not in it.seen
        assert b"Traceback" not in it.seen
    assert queue.counts().pending == 1


def test_question_is_answered_at_a_terminal(server_url: str, queue_name: str) -> None:
    """Yes: it is done."""
    queue = sync.Client(server_url).queue(queue_name)
    queue.enqueue(b"", task="x")
    with terminal("cancel", "--task", "x", "-q", queue_name, "--url", server_url) as it:
        it.read_until(b"[y/N]")
        os.write(it.master, b"y\n")
        assert it.ended() == 0
        assert b"1 cancelled" in it.seen


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_redrive_that_is_broken_off_leaves_the_terminal_whole(
    server_url: str, queue_name: str, number: signal.Signals
) -> None:
    """Ctrl-C: it says how many were redriven at least. Both: the cursor is shown."""
    bury(server_url, queue_name, *[("t", ValueError())] * 3)
    queue = sync.Client(server_url).queue(queue_name)
    with terminal("redrive", "--all", "--rate", "1/30", "-q", queue_name, "--url", server_url) as it:
        it.read_until(b"\x1b[?25l")
        it.read_until(b"1/3")
        it.process.send_signal(number)
        code = it.ended()
        assert it.seen.rfind(b"\x1b[?25h") > it.seen.rfind(b"\x1b[?25l")
        if number == signal.SIGTERM:
            assert code == -signal.SIGTERM
        else:
            assert code == 130
            assert b"at least 1 redriven until then" in it.seen
            assert b"interrupted" in it.seen
    assert queue.counts().pending == 1
