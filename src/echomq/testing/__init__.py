"""For users' own tests: run a task without a server, or all of an app's jobs on a private one, without sleeping.

Nothing here is for production: `advance` and `drain` change what waits on the server that they are given.
`echomq.testing.pytest` is a plugin with fixtures.
"""

from __future__ import annotations

from echomq.testing._advance import advance
from echomq.testing._direct import Noted, run_job, run_task
from echomq.testing._drain import Drained, FailedAttempt, drain
from echomq.testing._stand_in import FollowUp

__all__ = ["Drained", "FailedAttempt", "FollowUp", "Noted", "advance", "drain", "run_job", "run_task"]
