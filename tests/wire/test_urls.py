"""URLs of servers."""

from __future__ import annotations

import ssl

import pytest

from echomq.wire.urls import Address, Tls, parse, redact


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("valkey://localhost", Address()),
        ("redis://h:7000/3", Address(host="h", port=7000, db=3)),
        ("VALKEY://h", Address(host="h")),
        ("valkey://me:p%40ss@h", Address(host="h", username="me", password="p@ss")),
        ("valkey://:secret@h", Address(host="h", password="secret")),
        ("valkey://[::1]:7000", Address(host="::1", port=7000)),
        ("rediss://h", Address(host="h", tls=Tls())),
        (
            "valkeys://h?ssl_ca_certs=/ca.pem&ssl_check_hostname=false&ssl_cert_reqs=none",
            Address(
                host="h",
                tls=Tls(ca_certs="/ca.pem", check_hostname=False, cert_reqs=ssl.CERT_NONE),
            ),
        ),
        ("unix:///run/v.sock?db=2", Address(path="/run/v.sock", db=2)),
        ("unix://me:pw@/run/v.sock", Address(path="/run/v.sock", username="me", password="pw")),
    ],
)
def test_url_is_read(url: str, address: Address) -> None:
    """Each scheme and option reads as it does in redis-py, with the valkey schemes beside."""
    assert parse(url) == address


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:6379",
        "http://:hunter2@h",
        "valkey://:hunter2@h:port",
        "valkey://:hunter2@h:0",
        "valkey://:hunter2@h:70000",
        "valkey://:hunter2@h/jobs",
        "valkey://h?password=hunter2&timeoot=3",
        "valkey://h?db=x&password=hunter2",
        "valkey://h?db=-1&password=hunter2",
        "valkeys://:hunter2@h?ssl_cert_reqs=perhaps",
        "valkey://h?ssl_ca_certs=/hunter2",
        "unix://",
        "valkey://:hunter2@[::1",
    ],
)
def test_url_that_does_not_fit_is_refused_without_its_password(url: str) -> None:
    """A bad URL raises a ValueError whose text and causes do not show the password."""
    with pytest.raises(ValueError, match="not a server's URL") as caught:
        parse(url)
    error: BaseException | None = caught.value
    while error is not None:
        assert "hunter2" not in str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def test_address_hides_its_password() -> None:
    """Neither the text nor the representation of an address shows the password."""
    address = parse("valkeys://me:hunter2@h:7000/3")
    assert str(address) == "valkeys://me:***@h:7000/3"
    assert "hunter2" not in repr(address)
    assert str(parse("unix://:x@/a?db=1")) == "unix://:***@/a?db=1"
    assert str(parse("valkey://[::1]")) == "valkey://[::1]:6379"


def test_redact_hides_what_may_be_a_password() -> None:
    """Also what is no URL at all is shown without a password."""
    assert redact("valkey://a:b@c@h:1/2?password=x") == "valkey://***@h:1/2"
    assert redact("a:b@h") == "..."
