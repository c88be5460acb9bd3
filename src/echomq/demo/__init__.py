"""A demonstration: the checksum of every file of a directory tree, while a worker is killed.

`python -m echomq.demo [DIR]` starts a private Valkey and two workers, makes one job of each file, kills one worker with
SIGKILL in the middle, and checks at the end that every digest is there and right. `echomq.demo.jobs` is the whole of
the application: read that first.
"""
