"""Where the server is: `redis://`, `rediss://`, `valkey://`, `valkeys://` and `unix://` (Runtime, section 1).

The parsing is redis-py's; this module adds the schemes, refuses what redis-py would pass over in
silence, and never lets a password into a message.
"""

from __future__ import annotations

import ssl
from typing import Any, Final, final
from urllib.parse import parse_qs, urlsplit

import attrs
from redis.connection import parse_url

_SCHEMES: Final = {
    "redis": "redis",
    "valkey": "redis",
    "rediss": "rediss",
    "valkeys": "rediss",
    "unix": "unix",
}
_TLS_OPTIONS: Final = frozenset({"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"})
_OPTIONS: Final = frozenset({"db", "username", "password"})
_CERT_REQS: Final = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_MAX_PORT: Final = 65535
DEFAULT_PORT: Final = 6379
"""The port when the URL names none."""


@final
@attrs.frozen(kw_only=True)
class Tls:
    """How the server's certificate is checked, and which one we show."""

    ca_certs: str | None = None
    """Path of the authorities' certificates; None means the system's."""
    certfile: str | None = None
    """Path of our own certificate, for servers that ask for one."""
    keyfile: str | None = None
    """Path of its key; None means it stands in `certfile`."""
    cert_reqs: ssl.VerifyMode = ssl.CERT_REQUIRED
    """Whether the server's certificate is checked at all."""
    check_hostname: bool = True
    """Whether the certificate must be for the URL's host."""

    def context(self) -> ssl.SSLContext:
        """Make the context; reads the files.

        Raises:
            OSError: A file cannot be read.
            ssl.SSLError: A file is not what it should be.
        """
        context = ssl.create_default_context(cafile=self.ca_certs)
        context.check_hostname = self.check_hostname and self.cert_reqs is not ssl.CERT_NONE
        context.verify_mode = self.cert_reqs
        if self.certfile is not None:
            context.load_cert_chain(self.certfile, self.keyfile)
        return context


@final
@attrs.frozen(kw_only=True)
class Address:
    """One server, and who we are there."""

    host: str = "localhost"
    """Name or IP address; without meaning when `path` is given."""
    port: int = DEFAULT_PORT
    """TCP port."""
    path: str | None = None
    """Path of a unix socket, instead of host and port."""
    db: int = 0
    """Database number."""
    username: str | None = None
    """ACL user; None with a password means `default`."""
    password: str | None = attrs.field(default=None, repr=False)
    """Never printed."""
    tls: Tls | None = None
    """None means plain text."""

    def __str__(self) -> str:
        """Write it as a URL for people: the password is hidden."""
        auth = f"{self.username or ''}{':***' if self.password else ''}"
        auth = f"{auth}@" if auth else ""
        db = self.db or ""
        if self.path is not None:
            return f"unix://{auth}{self.path}{f'?db={db}' if db else ''}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        scheme = "valkeys" if self.tls else "valkey"
        return f"{scheme}://{auth}{host}:{self.port}{f'/{db}' if db else ''}"


def parse(url: str) -> Address:
    """Read a URL.

    Args:
        url: `valkey://[user[:password]@]host[:port][/db]`, likewise `redis://`; `valkeys://` and
            `rediss://` for TLS, with `ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile`, `ssl_cert_reqs`
            (`none`, `optional`, `required`) and `ssl_check_hostname` as query options;
            `unix://[user[:password]@]/path[?db=n]`.

    Raises:
        ValueError: Not such a URL. The message shows the URL without what may be a password.
    """
    if not isinstance(url, str):
        raise TypeError(f"a server's URL is a string, not {type(url).__name__}")
    # Why no `from`: the cause's message may show the URL, password and all.
    try:
        return _parse(url)
    except _BadUrlError as error:
        problem = str(error)
    except ValueError:
        problem = "it cannot be parsed"
    raise ValueError(f"not a server's URL, {problem}: {redact(url)!r}")


def redact(url: str) -> str:
    """Show a URL, even a broken one, without anything that may be a password."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return "..." if "@" in url or "password" in url else url[:80]
    _, at, place = rest.rpartition("@")
    place = place.partition("?")[0]
    return f"{scheme}://{'***@' if at else ''}{place}"


class _BadUrlError(ValueError):
    """Says what is wrong without repeating the URL."""


def _parse(url: str) -> Address:
    scheme, mark, rest = url.partition("://")
    known = _SCHEMES.get(scheme.lower()) if mark else None
    if known is None:
        raise _BadUrlError("it should begin with valkey://, valkeys://, redis://, rediss:// or unix://")
    canonical = f"{known}://{rest}"
    parts = urlsplit(canonical)
    _check_parts(parts.path, parts.query, known)
    try:
        port = parts.port
    except ValueError:
        raise _BadUrlError(f"its port is not a number from 1 to {_MAX_PORT}") from None
    if port == 0:
        raise _BadUrlError(f"its port is not a number from 1 to {_MAX_PORT}")
    options: dict[str, Any] = parse_url(canonical)
    db = int(options.get("db", 0))
    if db < 0:
        raise _BadUrlError("its database number is negative")
    common: dict[str, Any] = {
        "db": db,
        "username": options.get("username"),
        "password": options.get("password"),
    }
    if known == "unix":
        return Address(path=options["path"], **common)
    return Address(
        host=options.get("host", "localhost"),
        port=options.get("port", DEFAULT_PORT),
        tls=_tls(options) if known == "rediss" else None,
        **common,
    )


def _check_parts(path: str, query: str, scheme: str) -> None:
    """Refuse what redis-py would pass over: a misspelt option is otherwise a setting lost in silence."""
    allowed = _OPTIONS | _TLS_OPTIONS if scheme == "rediss" else _OPTIONS
    for name in parse_qs(query, keep_blank_values=True):
        if name not in allowed:
            raise _BadUrlError(f"the option {name[:40]!r} is unknown to {scheme}://")
    if scheme == "unix":
        if not path:
            raise _BadUrlError("it names no path")
    elif path not in {"", "/"} and not path[1:].isdecimal():
        raise _BadUrlError("its path should be a database number")


def _tls(options: dict[str, Any]) -> Tls:
    reqs = str(options.get("ssl_cert_reqs", "required")).lower()
    if reqs not in _CERT_REQS:
        raise _BadUrlError(f"ssl_cert_reqs is none, optional or required, not {reqs[:40]!r}")
    check = options.get("ssl_check_hostname")
    return Tls(
        ca_certs=options.get("ssl_ca_certs"),
        certfile=options.get("ssl_certfile"),
        keyfile=options.get("ssl_keyfile"),
        cert_reqs=_CERT_REQS[reqs],
        check_hostname=True if check is None else bool(check),
    )
