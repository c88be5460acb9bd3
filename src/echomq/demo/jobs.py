"""The jobs of the demonstration: the checksum of one file, and the sums of a directory and of the tree.

This is all that an application writes for its workers. They are started with::

    python -m echomq.worker echomq.demo.jobs:app --url valkey://localhost:6379
"""

from __future__ import annotations

import hashlib
import os

import attrs

from echomq.app import App
from echomq.flows import FlowLimits
from echomq.job import Job, SyncJob

# A flow may have 100,000 children of one parent unless told otherwise; a directory, more files.
app = App(flow_limits=FlowLimits(breadth=10_000_000))


@attrs.frozen
class Digest:
    """What a job finds out."""

    sha256: str
    size: int
    worker: int
    """The process that read the file."""
    attempt: int
    """1, unless workers before this one did not come to an end with the file."""


# A plain function runs in a thread, as suits work that waits for a disk and hashes without the interpreter's lock. A
# file that cannot be read now will not be readable in a second either, hence one attempt; an attempt that was cut short
# by the death of its worker does not count, and is made again.
@app.task(queue="checksums", max_attempts=1, result_ttl=3600)
def checksum(job: SyncJob, path: bytes) -> Digest:
    """Compute the SHA-256 of a file. The path is bytes: a file's name need not be text."""
    job.progress(0, message=f"in worker {os.getpid()}")
    with open(path, "rb") as file:  # noqa: PTH123 - pathlib knows no names in bytes
        digest = hashlib.file_digest(file, "sha256")
        return Digest(digest.hexdigest(), file.tell(), os.getpid(), job.attempt)


@attrs.frozen
class Sum:
    """What a directory's files, or all directories, come to."""

    files: int
    """Files with a digest."""
    size: int
    """Their bytes."""


# A parent: it runs when its files' jobs have ended, on what they returned. A file without a digest does not count.
@app.task(queue="checksums", max_attempts=1, result_ttl=3600)
async def sum_directory(job: Job) -> Sum:
    """Sum up the files of a directory."""
    digests = await job.children_results(Digest)
    return Sum(len(digests), sum(digest.size for digest in digests.values()))


@app.task(queue="checksums", max_attempts=1, result_ttl=3600)
async def sum_tree(job: Job) -> Sum:
    """Sum up all directories."""
    sums = await job.children_results(Sum)
    return Sum(sum(each.files for each in sums.values()), sum(each.size for each in sums.values()))
