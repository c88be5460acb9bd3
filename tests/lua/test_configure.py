"""`configure`: the whole keyspace before and after."""

from __future__ import annotations

import pytest

from echomq.conformance.bench import Bench
from echomq.conformance.driver import CallRefusedError
from tests.lua.watching import changes


def configure(bench: Bench, **settings: str) -> bool:
    """Run the verb."""
    return bool(bench.worker.plain("configure", settings=settings))


def test_configure_writes_the_setting(bench: Bench) -> None:
    """One field of meta."""
    assert changes(bench, lambda: configure(bench, events="none")) == (True, {"meta[events] = none"})


def test_configure_keeps_limits_as_one_text(bench: Bench) -> None:
    """Limit and rate stand together; max_size by itself, for enqueue asks for nothing else."""
    bench.add()
    bench.server.delete(bench.keys.wake)
    answer, changed = changes(bench, lambda: configure(bench, limit="3", rate="10 1000 5", max_size="9"))
    assert answer is True
    assert changed == {"meta[limits] = 0 3 10 1000 5 0.000 0 0", "meta[max_size] = 9", "wake: 0 -> 1"}
    answer, changed = changes(bench, lambda: configure(bench, limit="", rate="", max_size=""))
    assert answer is True
    assert changed == {"meta[limits] = nothing", "meta[max_size] = nothing", "wake: 1 -> 2"}


def test_configure_bounds_what_is_kept(bench: Bench) -> None:
    """Each by itself; "" is the default again."""
    settings = {"dead_max": "3", "dead_age": "86400000", "done_max": "5"}
    answer, changed = changes(bench, lambda: configure(bench, **settings))
    assert (answer, changed) == (True, {f"meta[{name}] = {value}" for name, value in settings.items()})
    assert changes(bench, lambda: configure(bench, **settings)) == (False, set())
    answer, changed = changes(bench, lambda: configure(bench, dead_max="", done_max=""))
    assert (answer, changed) == (True, {"meta[dead_max] = nothing", "meta[done_max] = nothing"})


def test_configure_of_what_is_so_already_changes_nothing(bench: Bench) -> None:
    """And answers that."""
    configure(bench, limit="3", rate="10 1000 5", max_size="9")
    settings = {"limit": "3", "rate": "10 1000 5", "max_size": "9", "events": "all"}
    assert changes(bench, lambda: configure(bench, **settings)) == (False, set())


def test_configure_of_unset_only_leaves_what_is_set(bench: Bench) -> None:
    """The fixture has set which events are kept."""
    settings = {"events": "none", "limit": "3"}
    _, changed = changes(bench, lambda: bench.worker.plain("configure", settings=settings, only_unset=True))
    assert changed == {"meta[limits] = 0 3 0 0 0 0.000 0 0"}


def test_configure_makes_meta(bench: Bench) -> None:
    """A queue may be set up before its first job."""
    bench.server.delete(bench.keys.meta)
    _, changed = changes(bench, lambda: configure(bench, events="none"))
    assert changed == {"meta[protocol] = 1.0", "meta[events] = none", "meta[born] = T"}


def test_configure_refuses_another_word(bench: Bench) -> None:
    """And changes nothing."""

    def refused() -> None:
        with pytest.raises(CallRefusedError, match=r"EMQKIND events some$"):
            configure(bench, limit="3", events="some")

    assert changes(bench, refused) == (None, set())
