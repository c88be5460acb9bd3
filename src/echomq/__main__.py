"""`python -m echomq`: the command line. See `echomq.cli`."""

from __future__ import annotations

from echomq.cli import main

if __name__ == "__main__":
    main(prog_name="python -m echomq")
