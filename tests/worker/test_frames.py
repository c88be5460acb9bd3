"""Messages between a worker and its children: in pieces, nonsense, and what cannot be pickled or restored."""

from __future__ import annotations

import os
import pickle
import struct
from typing import Any

import pytest

from echomq.errors import DecodeError, EncodeError, ProcessDiedError
from echomq.verdicts import Discard, RateLimited, Retry, Snooze
from echomq.worker.frames import Unpacker, dump, load, pack, read, write


def test_messages_come_in_pieces() -> None:
    """Byte by byte, or many at once."""
    messages = [("a",), ("b", 1, b"x" * 1000), ()]
    data = b"".join(pack(*each) for each in messages)
    for size in (1, 7, len(data)):
        unpacker = Unpacker()
        found = [each for at in range(0, len(data), size) for each in unpacker.feed(data[at : at + size])]
        assert found == messages


def test_nonsense_is_told_at_once() -> None:
    """What somebody else has written is no length."""
    with pytest.raises(DecodeError, match="Hello, wo"):
        list(Unpacker().feed(b"Hello, world"))
    with pytest.raises(pickle.UnpicklingError):
        list(Unpacker().feed(struct.pack("!Q", 3) + b"abc"))


def test_messages_go_through_pipes() -> None:
    """The blocking side: whole messages, and None at the end, also in the middle of one."""
    source, sink = os.pipe()
    write(sink, pack("a", 1) + pack("b")[:5])
    os.close(sink)
    assert read(source) == ("a", 1)
    assert read(source) is None
    os.close(source)


@pytest.mark.parametrize(
    "verdict",
    [
        Retry(5, "why"),
        Retry(),
        Snooze(3),
        RateLimited(2, scope="queue"),
        Discard("no"),
        Discard(),
        ProcessDiedError(-9),
    ],
    ids=repr,
)
def test_verdicts_survive_pickle(verdict: Any) -> None:
    """With all that they say."""
    again = pickle.loads(pickle.dumps(verdict))
    assert (type(again), vars(again), str(again), again.args) == (
        type(verdict), vars(verdict), str(verdict), verdict.args,
    )  # fmt: skip


def test_main_module_is_asked_for_only_when_it_is_needed() -> None:
    """Importing it takes time, and does what it does."""
    asked: list[int] = []
    assert load("x", dump("x", {"a": [1]}), lambda: asked.append(1)) == {"a": [1]}
    assert asked == []
    with pytest.raises(DecodeError, match="x cannot be restored"):
        load("x", b"c__main__\nnothing_there\n.", lambda: asked.append(1))
    assert asked == [1]


def test_values_are_refused_readably() -> None:
    """Too large, or of no kind that a pickle knows."""
    with pytest.raises(EncodeError, match="an argument cannot be pickled, and a process is given and gives"):
        dump("an argument", lambda: None)
    with pytest.raises(EncodeError, match="x has 100009 bytes as a pickle, where the limit is 100 "):
        dump("x", b"x" * 100_000, 100)
    assert load("x", dump("x", b"x" * 60_000, 100)) == b"x" * 60_000
    with pytest.raises(DecodeError, match="the result cannot be restored from its pickle: "):
        load("the result", b"nonsense")


@pytest.mark.parametrize(
    ("code", "words"),
    [(0, "exit code 0"), (3, "exit code 3"), (-11, "killed by SIGSEGV"), (-99, "killed by signal 99")],
)
def test_death_is_told_in_words(code: int, words: str) -> None:
    """An exit code, or a signal."""
    error = ProcessDiedError(code)
    assert (error.code, str(error)) == (code, f"the handler's process died: {words}")
