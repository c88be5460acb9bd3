"""Workers that are killed while a job spawns children: each child is there once, and the job has all results."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from echomq import sync
from tests.worker.processes import wait_until, worker_process
from tests.worker.support import Peek


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("where", ["between", "sent", "after"])
def test_worker_killed_between_spawning_and_suspending_doubles_no_child(
    server_url: str, queue_name: str, peek: Peek, where: str
) -> None:
    """The next attempt finds by name what was spawned, in this queue and in another, and goes on."""
    app = "tests.faults.families_app:app"
    with ExitStack() as stack:
        queue = stack.enter_context(sync.Client(server_url)).queue(queue_name)
        handle = queue.enqueue(b'{"args":["%s"]}' % where.encode(), task="parent", result_ttl=600)
        dying = stack.enter_context(worker_process(server_url, queue_name, app=app))
        assert dying.wait() == -9
        peek.expire(handle.id)  # not after half a minute
        stack.enter_context(worker_process(server_url, queue_name, app=app))
        assert handle.result(timeout=40) == sum(range(150)) + 1000
        wait_until(lambda: not peek.client.exists(peek.keys.outbox))
        ran = [int(each) for each in peek.client.lrange(f"ran:{queue_name}", 0, -1)]
    # A child that ran as its worker was killed has run again, as any job; so each has, and one row a name.
    assert set(ran) == {*range(150), 1000}
    assert peek.count("completed") == 151
