"""`python -m echomq.conformance URL`: the same as `echomq conformance URL`; see `echomq.cli.conformance`."""

from __future__ import annotations

from echomq.cli.conformance import conformance as main

__all__ = ["main"]

if __name__ == "__main__":
    main(prog_name="python -m echomq.conformance")
