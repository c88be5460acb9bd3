"""Who may speak to whom."""

from __future__ import annotations

import pytest

from echomq.errors import ProtocolMismatchError
from echomq.protocol.version import PROTOCOL, check, compatible, parse


def test_version_parses_major_and_minor() -> None:
    """A version is two plain numbers."""
    assert parse(PROTOCOL) == (1, 0)
    assert parse("12.345") == (12, 345)


@pytest.mark.parametrize("version", ["", "1", "1.", "1.0.0", "01.0", "1.-1", " 1.0", "1.0\n", "v1.0", "\u0661.0"])
def test_version_refuses_other_forms(version: str) -> None:
    """Anything else is refused and shown, and is compatible with nothing."""
    with pytest.raises(ValueError, match="major"):
        parse(version)
    assert not compatible(version)


def test_version_fits_by_major() -> None:
    """Minors may differ either way, majors may not; the refusal names queue and both versions."""
    assert compatible("1.0", "1.7")
    assert compatible("1.7", "1.0")
    assert not compatible("2.0", "1.7")
    check("1.3")
    with pytest.raises(ProtocolMismatchError, match=r"'q'.*2\.0.*1\.0"):
        check("2.0", "1.0", queue="q")
