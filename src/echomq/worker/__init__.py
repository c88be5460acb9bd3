"""The runtime: a worker whose leases are scopes. `run_worker` embeds it, `python -m echomq.worker` runs it."""
