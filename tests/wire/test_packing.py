"""Commands as bytes."""

from __future__ import annotations

from typing import Any

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomq.protocol.newjob import NewJob
from echomq.protocol.stamps import JobStamp
from echomq.transitions import Completion
from echomq.transitions.base import spell
from echomq.wire.packing import join_parts, pack, pack_item, pack_part

MODELS = (
    NewJob(),
    NewJob(task="noop"),
    NewJob(task="noop", priority=-5, delay_ms=10, dedup="d\u00fc", max_attempts=3, headers={"a": "b"}),
)


def arguments_in(command: bytes) -> list[bytes]:
    """Read a command as the server would."""
    reader = hiredis.Reader()
    reader.feed(command)
    found: list[bytes] = reader.gets()
    assert reader.gets() is False
    return found


@pytest.mark.parametrize("model", MODELS)
@given(st.one_of(st.binary(max_size=300), st.sampled_from([0, 1, 63, 64, 65, 127, 128, 129, 256, 257]).map(bytes)))
def test_stamped_job_is_packed_as_any_item_is(model: NewJob, payload: bytes) -> None:
    """The short way for bulk producers and the general one write the same bytes; a stamp is used again and again."""
    stamp = JobStamp(model)
    for job in (stamp.make(payload), stamp.make(payload)):
        assert pack_item(job) == (len(job.arguments()), pack_part(job.arguments()))


@pytest.mark.parametrize("item", ["JOB00000000000", Completion("JOB00000000000", 3, "n", b"\r\n$1"), NewJob(task="t")])
def test_joined_parts_are_one_command(item: Any) -> None:
    """A command that was packed in parts is the one that was packed whole."""
    count, part = pack_item(item)
    assert count == len(spell(item))
    head = ("EVALSHA", "sha", 2)
    whole = join_parts(len(head) + 2 * count, [pack_part(head), part, part])
    assert whole == pack((*head, *spell(item), *spell(item)))
    assert len(arguments_in(whole)) == len(head) + 2 * count


def test_nothing_is_an_empty_part() -> None:
    """A stamp may have nothing to add behind the payload."""
    assert pack_part(()) == b""
