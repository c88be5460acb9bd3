"""Key names, and the names that are refused before any I/O."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from echomq.protocol.keys import QueueKeys, check_dedup_key, check_queue_name, check_task_name

KEYS = QueueKeys(queue="thumbnails")
FIXED = ("meta", "void", "pending", "active", "schedule", "dead", "waiting", "done", "wake", "events", "counts")


def test_keys_begin_with_prefix_and_hash_tag() -> None:
    """Every key is prefix, braced queue and suffix; the prefix is the client's."""
    assert KEYS.base == "emq:{thumbnails}:"
    assert [getattr(KEYS, suffix) for suffix in FIXED] == [KEYS.base + suffix for suffix in FIXED]
    assert QueueKeys(prefix="shop", queue="q").meta == "shop:{q}:meta"


def test_keys_of_a_job_name_row_log_and_channel() -> None:
    """A job's row, log and result channel derive from its id; the channel is the row's name."""
    assert KEYS.job("JOB0") == "emq:{thumbnails}:job:JOB0"
    assert KEYS.log("JOB0") == "emq:{thumbnails}:job:JOB0:log"
    assert KEYS.result_channel("JOB0") == KEYS.job("JOB0")
    assert KEYS.cancel_channel == "emq:{thumbnails}:cancel"
    assert KEYS.once("tag", "claim") == "emq:{thumbnails}:once:tag:claim"


@given(st.from_regex(r"[A-Za-z0-9._-]{1,128}", fullmatch=True), st.text(min_size=1, max_size=60))
def test_keys_lie_in_one_slot(queue: str, dedup: str) -> None:
    """Whatever the queue's name and the dedup key, braces included, all keys hash to one cluster slot."""
    keys = QueueKeys(queue=queue)
    names = [keys.meta, keys.pending, keys.job("JOB00000000000"), keys.once("a", "claim")]
    with contextlib.suppress(ValueError):  # control characters and the like
        names.append(keys.dedup(dedup))
    assert len({key_slot(name.encode()) for name in names}) == 1


def test_keys_are_equal_by_prefix_and_queue() -> None:
    """Two values for one queue are equal and hash alike, so that they can key a cache."""
    assert QueueKeys(queue="a") == QueueKeys(queue="a")
    assert len({QueueKeys(queue="a"), QueueKeys(queue="a"), QueueKeys(queue="a", prefix="b")}) == 2


@pytest.mark.parametrize("name", ["", "a b", "a{b}", "\u00fc", "a\n", "x" * 129, "a:b", None, b"q", 3])
def test_queue_name_refused_is_shown(name: Any) -> None:
    """A queue's name that does not fit is refused with a message that shows it."""
    with pytest.raises(ValueError, match=re.escape(repr(name))):
        check_queue_name(name)
    with pytest.raises(ValueError, match=re.escape(repr(name))):
        QueueKeys(queue=name)


@pytest.mark.parametrize("prefix", ["", "a{", "a}", "a b", "x" * 65])
def test_prefix_refused_is_shown(prefix: str) -> None:
    """Braces in the prefix would move the hash tag, so they are refused."""
    with pytest.raises(ValueError, match=re.escape(repr(prefix))):
        QueueKeys(prefix=prefix, queue="q")


@pytest.mark.parametrize("name", ["", "a b", "x" * 129, "a/b", None])
def test_task_name_refused_is_shown(name: Any) -> None:
    """A task's name that does not fit is refused with a message that shows it; a colon fits."""
    assert check_task_name("shop:thumbs.make-1_x") == "shop:thumbs.make-1_x"
    with pytest.raises(ValueError, match=re.escape(repr(name))):
        check_task_name(name)


@pytest.mark.parametrize("key", ["", "a\n", "\x7f", "\x85", "\u00e4" * 129, "\ud800", None, b"k"])
def test_dedup_key_refused_is_shown(key: Any) -> None:
    """A dedup key is 1 to 256 bytes of text without control characters; else it is refused and shown."""
    assert check_dedup_key("\u00e4" * 128) == "\u00e4" * 128
    with pytest.raises(ValueError, match=re.escape(repr(key))):
        check_dedup_key(key)
