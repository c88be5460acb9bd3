"""`configure`: the whole keyspace before and after."""

from __future__ import annotations

import pytest

from echomq.conformance.bench import Bench
from echomq.conformance.driver import CallRefusedError
from tests.lua.watching import changes


def test_configure_writes_the_setting(bench: Bench) -> None:
    """One field of meta."""
    assert changes(bench, lambda: bench.worker.plain("configure", settings={"events": "none"})) == (True, {"meta[events] = none"})


def test_configure_makes_meta(bench: Bench) -> None:
    """A queue may be set up before its first job."""
    bench.server.delete(bench.keys.meta)
    _, changed = changes(bench, lambda: bench.worker.plain("configure", settings={"events": "none"}))
    assert changed == {"meta[protocol] = 1.0", "meta[events] = none"}


def test_configure_refuses_another_word(bench: Bench) -> None:
    """And changes nothing."""

    def configure() -> None:
        with pytest.raises(CallRefusedError, match="EMQKIND events some is not none, failures or all"):
            bench.worker.plain("configure", settings={"events": "some"})

    assert changes(bench, configure) == (None, set())
