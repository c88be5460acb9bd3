"""echomq: a job queue whose lease is a scope."""
