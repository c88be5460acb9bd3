"""An app whose workers are killed in the middle of a nursery, once each: after its children were sent, or between two calls."""

from __future__ import annotations

import os
import signal

import anyio.lowlevel

from echomq import App, Job
from tests.worker.jobs_app import QUEUE, _client

app = App()
CHILDREN = f"emq:{{{{{QUEUE}}}}}:job:{{}}:children"


def die_once(where: str) -> None:
    """Be killed, as by the kernel, if nobody was here before."""
    if _client.set(f"died:{QUEUE}:{where}", 1, nx=True):
        os.kill(os.getpid(), signal.SIGKILL)


@app.task(queue=QUEUE, result_ttl=600)
async def parent(job: Job, where: str) -> int:
    """Sum up what the children return."""
    async with job.nursery() as children:
        counted = [children.enqueue(one.call(i)) for i in range(150)]
        if where == "between":
            while not _client.hlen(CHILDREN.format(job.id)):
                await anyio.lowlevel.checkpoint()
            die_once(where)
        far = children.enqueue(away.call(1000), name="far")
        if where == "sent":
            while _client.hlen(CHILDREN.format(job.id)) < 151:
                await anyio.lowlevel.checkpoint()
            die_once(where)
    if where == "after":
        die_once(where)
    return sum(each.result() for each in counted) + far.result()


@app.task(queue=QUEUE)
async def one(i: int) -> int:
    """Count that it ran."""
    _client.rpush(f"ran:{QUEUE}", i)
    return i


@app.task(queue=f"{QUEUE}-far")
async def away(i: int) -> int:
    """Do so elsewhere."""
    _client.rpush(f"ran:{QUEUE}", i)
    return i
