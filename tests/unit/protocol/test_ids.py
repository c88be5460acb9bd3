"""Identifiers: their vectors, their order, and what a mint promises under clocks, threads, signals and forks."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomq.protocol import ids
from echomq.protocol.ids import EPOCH_MS, MAX_VALUE, IdMint, decode, encode, mint, parse

NUMBERS = st.integers(0, MAX_VALUE)
MS = 1_000_000


@pytest.mark.parametrize(
    ("value", "digits"),
    [
        (0, "00000000000"),
        (61, "0000000000z"),
        (62, "00000000010"),
        (3844, "00000000100"),
        (274557032793636864, "0KHTOWnGLuC"),
        (209715201620567, "000xY9Wvvcd"),
        (MAX_VALUE, "AzL8n0Y58m7"),
    ],
)
def test_encode_agrees_with_the_vectors(value: int, digits: str) -> None:
    """The numbers of the protocol page are written as they stand there, and read back."""
    assert encode(value) == digits
    assert decode(digits) == value


@pytest.mark.parametrize(
    ("id", "kind", "unix_ms", "node", "seq"),
    [
        ("USR0KHTOWnGLuC", "USR", 1769526697641, 0, 0),
        ("EVT000xY9Wvvcd", "EVT", 1704117200000, 395, 2647),
    ],
)
def test_parse_agrees_with_the_vectors(id: str, kind: str, unix_ms: int, node: int, seq: int) -> None:
    """The ids of the protocol page say when, where and in which place they were minted."""
    assert parse(id) == ids.ParsedId(kind=kind, unix_ms=unix_ms, node=node, seq=seq)


@given(NUMBERS)
def test_encode_round_trips(value: int) -> None:
    """What is encoded decodes to itself, in 11 digits."""
    assert len(encode(value)) == 11
    assert decode(encode(value)) == value


@given(NUMBERS, NUMBERS)
def test_encode_orders_bytes_as_numbers(one: int, other: int) -> None:
    """Comparing ids as bytes compares their numbers, which is why a sorted set needs no second index."""
    assert (encode(one).encode() < encode(other).encode()) == (one < other)


@pytest.mark.parametrize("value", [-1, MAX_VALUE + 1])
def test_encode_refuses_numbers_out_of_range(value: int) -> None:
    """A number that does not fit in 63 bits is refused and shown."""
    with pytest.raises(ValueError, match=str(value)):
        encode(value)


@pytest.mark.parametrize(
    "digits", ["", "0", "0" * 10, "0" * 12, "zzzzzzzzzzz", "AzL8n0Y58m8", "0000000000-", "0000000000\u0660", " " * 11]
)
def test_decode_refuses_what_is_no_number(digits: str) -> None:
    """Digits of another length, alphabet or size are refused and shown."""
    with pytest.raises(ValueError, match="digits"):
        decode(digits)


@pytest.mark.parametrize(
    "id", ["", "JOB", "job00000000000", "JO100000000000", "JOBzzzzzzzzzzz", "JOB0000000000\n", "JOB00000000000\n"]
)
def test_parse_refuses_what_is_no_id(id: str) -> None:
    """An id of another form is refused and shown."""
    with pytest.raises(ValueError, match="three capital letters"):
        parse(id)


@pytest.mark.parametrize("id", [3, None, b"JOB00000000000"])
def test_parse_refuses_what_is_no_string(id: object) -> None:
    """What is of another type is shown, too."""
    with pytest.raises(TypeError, match="an id is a string, not"):
        parse(id)  # type: ignore[arg-type]


def test_mint_makes_job_ids_of_now_by_default() -> None:
    """An id says the moment it was minted and is a job's unless told otherwise."""
    parsed = parse(mint())
    assert parsed.kind == "JOB"
    assert abs(parsed.unix_ms - time.time_ns() // MS) < 60_000
    assert parse(mint("EVT")).kind == "EVT"


@pytest.mark.parametrize("kind", ["", "JO", "JOBS", "job", "J0B", "J\u00d6B"])
def test_mint_refuses_other_kinds(kind: str) -> None:
    """A kind is three capital ASCII letters."""
    with pytest.raises(ValueError, match="kind"):
        mint(kind)


@given(st.lists(st.integers(-5_000, 5_000), min_size=1, max_size=60), st.integers(0, 2047))
def test_mint_grows_whatever_the_clock_does(steps: list[int], offset: int) -> None:
    """Ids strictly increase when the clock stands still, steps back or jumps ahead, even before the epoch."""
    now = itertools.accumulate(steps, initial=EPOCH_MS)
    made = IdMint(clock=lambda: next(now) * MS, random_bits=lambda _: offset)
    minted = [made.mint() for _ in steps]
    assert minted == sorted(set(minted))


@given(st.integers(0, 2047), st.integers(0, 1023))
def test_mint_borrows_the_next_millisecond_when_one_is_full(offset: int, node: int) -> None:
    """A burst beyond a millisecond's sequence goes on in the next one, at a new offset, without waiting."""
    made = IdMint(clock=lambda: (EPOCH_MS + 7) * MS, random_bits=lambda bits: {11: offset, 10: node}[bits])
    minted = [parse(made.mint()) for _ in range(4096 - offset + 1)]
    assert [(each.unix_ms - EPOCH_MS, each.seq) for each in minted[:-1]] == [(7, seq) for seq in range(offset, 4096)]
    assert (minted[-1].unix_ms - EPOCH_MS, minted[-1].seq) == (8, offset)
    assert {each.node for each in minted} == {node}


def test_mint_starts_each_millisecond_at_a_random_offset() -> None:
    """Two processes on one node number rarely meet: the offsets are spread over 0..2047."""
    ticks = itertools.count(EPOCH_MS)
    made = IdMint(clock=lambda: next(ticks) * MS)
    offsets = {parse(made.mint()).seq for _ in range(300)}
    assert len(offsets) > 200
    assert max(offsets) < 2048


def test_mint_refuses_a_clock_beyond_its_bits() -> None:
    """A clock past the year 2093 is an error, never a wrong id."""
    made = IdMint(clock=lambda: (EPOCH_MS + (1 << 41)) * MS)
    with pytest.raises(ValueError, match="2"):
        made.mint()


def test_mint_never_repeats_under_threads() -> None:
    """Threads that mint at once get ids of their own, each thread's in rising order."""

    def clock() -> int:
        time.sleep(0)  # lets others run in the middle of a mint
        return time.time_ns()

    made = IdMint(clock=clock)
    batches: list[list[str]] = []
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        batches.append([made.mint() for _ in range(500)])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    minted = [each for batch in batches for each in batch]
    assert len(set(minted)) == 8 * 500
    assert all(batch == sorted(batch) for batch in batches)


def test_mint_never_repeats_when_interrupted_by_a_mint() -> None:
    """A signal handler or finaliser that mints in the middle of a mint neither waits for ever nor takes its id."""
    calls = itertools.count(1)
    minted: list[str] = []

    def clock() -> int:
        if next(calls) % 3 == 1:  # as a handler would, run by the interpreter between two steps of the mint
            minted.append(made.mint())
        return (EPOCH_MS + 7) * MS

    made = IdMint(clock=clock, random_bits=lambda _: 0)
    thread = threading.Thread(target=lambda: minted.extend([made.mint()]), daemon=True)
    thread.start()
    thread.join(timeout=20)
    assert not thread.is_alive()
    minted.extend([made.mint() for _ in range(100)])
    assert len(minted) > 150
    assert len(set(minted)) == len(minted)


FORK = """
import json, os, threading
from echomq.protocol import ids

other = ids.IdMint()
def draw():
    return {"tag": ids.producer_tag(), "ids": [ids.mint() for _ in range(200)] + [other.mint() for _ in range(200)]}

before = draw()
taken = threading.Event()
def hold():  # a thread that mints at the moment of the fork
    with ids.mint.__self__._lock, ids._producer.lock:
        taken.set()
        threading.Event().wait()
threading.Thread(target=hold, daemon=True).start()
taken.wait()
read, write = os.pipe()
if os.fork() == 0:
    os.write(write, json.dumps(draw()).encode())
    os._exit(0)
os.close(write)
child = b"".join(iter(lambda: os.read(read, 65536), b""))
print(json.dumps([before, json.loads(child)]), flush=True)
os._exit(0)  # past the thread that still holds the locks
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_fork_draws_node_and_tag_anew() -> None:
    """A forked child shares neither tag nor node nor a held lock with its parent."""
    for _ in range(3):  # one node in 1,024 is drawn twice by chance
        done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, check=True, timeout=30)
        parent, child = json.loads(done.stdout)
        assert parent["tag"] != child["tag"]
        assert not set(parent["ids"]) & set(child["ids"])
        if all(
            parse(ours).node != parse(theirs).node
            for ours, theirs in ((parent["ids"][0], child["ids"][0]), (parent["ids"][-1], child["ids"][-1]))
        ):
            return
    pytest.fail("the child mints under its parent's node number")


def test_producer_tag_is_one_per_process() -> None:
    """The tag that rows carry stays the same, under threads too, and is 11 base62 characters."""
    tags: list[str] = []
    threads = [threading.Thread(target=lambda: tags.append(ids.producer_tag())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(tags) == {ids.producer_tag()}
    assert len(tags[0]) == 11
    assert tags[0].isascii()
    assert tags[0].isalnum()


def test_client_tag_is_fresh_each_time() -> None:
    """Each client has a tag of its own."""
    assert len({ids.client_tag() for _ in range(100)} | {ids.new_tag() for _ in range(100)}) == 200
