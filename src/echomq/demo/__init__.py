"""A demonstration: the checksum of every file of a directory tree, while a worker is killed.

`python -m echomq.demo [DIR]` starts a private Valkey and two workers, makes one job of each file, one of each
directory that waits for its files, and one that waits for all directories; kills one worker with SIGKILL in the middle, and
checks at the end that every digest is there and right, and the sums with it. `echomq.demo.jobs` is the whole of
the application: read that first.
"""
