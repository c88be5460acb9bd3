"""A small synchronous client of one queue, for proofs: it runs transitions, and what a network does to calls.

It numbers its calls as rule 6 asks (Protocol, section 4) and can send an earlier call again, byte for byte: as a resend
of the last one, or as an old socket's late copy of the one before. It can run a changed script in a verb's place.
Nothing else of echomq's own wire is used, so that a bug there cannot hide one in the scripts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final, TypeVar, final

import redis
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, ResponseError
from redis.retry import Retry

from echomq import transitions
from echomq.errors import EchoMQError
from echomq.protocol.ids import new_tag
from echomq.protocol.keys import QueueKeys
from echomq.protocol.refusals import Verdict
from echomq.transitions import MULTI, Call, ClaimReply, Script, Transition, load

T = TypeVar("T")

LEASE_MS: Final = 600_000
"""Ten minutes: no lease of a proof ends by itself; one that shall end has its score moved into the past."""


_SCRIPTS: Final = {"flow_receive": "flow_add"}
"""Verbs that share another one's script, and with it the numbers of its calls."""


@final
class CallRefusedError(EchoMQError):
    """A whole call was refused with one of the protocol's words."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(f"{verdict.code} {verdict.detail}".strip())
        self.verdict = verdict


def connect(url: str) -> redis.Redis:
    """Make a plain client: replies are bytes, and nothing is sent twice behind our back."""
    scheme, mark, rest = url.partition("://")  # redis-py does not know Valkey's own
    known = {"valkey": "redis", "valkeys": "rediss"}.get(scheme, scheme)
    return redis.Redis.from_url(f"{known}{mark}{rest}", retry=Retry(NoBackoff(), 0), socket_timeout=30)


@final
class Driver:
    """One client of one queue.

    Args:
        server: A redis-py client whose replies are bytes.
        keys: The queue.
        tag: The client's tag; drawn when not given.
        numbered: Whether calls are numbered, and so remembered by the server.
        scripts: Scripts to run in place of those of the package, by verb.
    """

    def __init__(
        self,
        server: redis.Redis,
        keys: QueueKeys,
        *,
        tag: str = "",
        numbered: bool = True,
        scripts: Mapping[str, Script] | None = None,
    ) -> None:
        self.server = server
        self.keys = keys
        self.tag = tag or new_tag()
        self.numbered = numbered
        self.scripts = dict(scripts or {})
        self.sent: defaultdict[str, list[Transition[Any]]] = defaultdict(list)
        """The calls sent so far, by verb, in order; a resend is not listed again."""
        self._numbers: defaultdict[str, int] = defaultdict(int)

    def call(self, verb: str) -> Call:
        """Number the next call of a verb."""
        if not self.numbered:
            return Call(self.tag, 0)
        self._numbers[verb] += 1
        return Call(self.tag, self._numbers[verb])

    def run(self, transition: Transition[T]) -> T:
        """Run a call and read its reply.

        Raises:
            CallRefusedError: The whole call was refused.
        """
        self.sent[transition.verb].append(transition)
        return transition.read(self.raw(transition))

    def raw(self, transition: Transition[Any]) -> Any:
        """Send a call as it is and answer the reply as it came."""
        script = self.scripts.get(transition.verb) or load(transition.verb)
        command = ("EVALSHA", script.sha, *transition.command()[2:])
        try:
            try:
                return self.server.execute_command(*command)
            except NoScriptError:
                self.server.execute_command("SCRIPT LOAD", script.source)
                return self.server.execute_command(*command)
        except ResponseError as error:
            if str(error).startswith("EMQ"):
                raise CallRefusedError(Verdict.parse(str(error))) from None
            raise

    def resend(self, verb: str, *, back: int = 1) -> Any:
        """Send the latest call of the verb again; `back=2`: the one before it, as an old socket's late copy."""
        transition = self.sent[verb][-back]
        return transition.read(self.raw(transition))

    def items(self, verb: str, *items: Any) -> list[Verdict]:
        """Run one call of a verb that carries items."""
        return self.run(MULTI[verb](self.keys, self.call(verb), items))

    def item(self, verb: str, item: Any) -> Verdict:
        """Run one call with one item."""
        return self.items(verb, item)[0]

    def claim(self, count: int = 1, *, lease_ms: int = LEASE_MS, **options: Any) -> ClaimReply:
        """Claim jobs; see `transitions.claim`."""
        return self.run(transitions.claim(self.keys, self.call("claim"), count=count, lease_ms=lease_ms, **options))

    def plain(self, verb: str, *arguments: Any, **options: Any) -> Any:
        """Run a verb that carries no items, by its name."""
        number = self.call(_SCRIPTS.get(verb, verb))
        return self.run(getattr(transitions, verb)(self.keys, number, *arguments, **options))

    def bare(self, verb: str, *arguments: bytes | str | int) -> Any:
        """Run a verb with arguments as given, well formed or not; answers the raw reply."""
        call = self.call(verb)
        return self.run(Transition(verb, self.keys, (call.client, call.number, *arguments), lambda reply: reply))
