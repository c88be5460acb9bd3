"""What handlers share: opened once a worker, and asked for by type.

::

    @app.provide
    async def open_pool() -> AsyncIterator[Pool]:
        async with create_pool(DSN) as pool:
            yield pool


    @app.task
    async def insert(row: Row, pool: Pool = echomq.INJECTED) -> None: ...

This module knows who provides what; `echomq.worker.resources` opens it.
"""

from __future__ import annotations

import collections.abc
import contextlib
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Final, Protocol, TypeVar, final, get_args, get_origin, overload

import attrs

from echomq.protocol._convert import shown, type_name

F = TypeVar("F", bound=Callable[[], Any])

Factory = Callable[[], AbstractAsyncContextManager[Any]]
"""Makes what opens and closes it."""

_OPENERS: Final = (
    collections.abc.AsyncIterator,
    collections.abc.AsyncGenerator,
    collections.abc.AsyncIterable,
    contextlib.AbstractAsyncContextManager,
)


@final
class _Injected:
    """The default of a parameter that the worker fills."""

    def __repr__(self) -> str:
        return "echomq.INJECTED"


INJECTED: Final[Any] = _Injected()
"""The default of a handler's parameter that the worker fills by the parameter's type: see `App.provide`."""


class Asking(Protocol):
    """What is looked at of a task."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def run_in(self) -> str | None:
        """Where it runs; `process`: in one of its own."""

    @property
    def injected(self) -> collections.abc.Mapping[str, Any]:
        """The type of each parameter that the worker fills."""


@final
@attrs.frozen(kw_only=True)
class Provider:
    """Who opens what."""

    type: Any
    """What is asked for."""
    factory: Factory = attrs.field(repr=False)
    """Opens it."""


@final
class Providers:
    """What an app's workers open for its handlers: `@app.provide`, or `app.provide(Type, factory)`.

    As a decorator it takes an asynchronous generator function without parameters that yields the value once, bare or
    under `contextlib.asynccontextmanager`, or a function that answers an asynchronous context manager; its return
    annotation names the type: `AsyncIterator[Pool]`, `AbstractAsyncContextManager[Pool]`. A handler asks with a parameter
    of just this type: a subclass is another one, and `Annotated[Pool, "replica"]` too, should there be two of a kind.

    A worker opens what its handlers ask for, and nothing else, once: before its first claim, one after another in the
    order in which tasks ask. It closes them in the reverse order after its last handler has ended, all in one task, so
    that a task group may stay open in a provider. Closing has what is left of `cleanup` seconds, and half a second at
    least; then it is cancelled. What opening or closing raises is raised by the worker's `run`; a provider that fails
    while the worker works (by a task group of its own) stops it in good order.

    That a type has no provider, or two, is told when a worker starts. A program that only enqueues needs none.
    """

    def __init__(self) -> None:
        self._given: list[tuple[Any, Callable[[], Any]]] = []

    @overload
    def __call__(self, function: F, /) -> F: ...
    @overload
    def __call__(self, type: Any, factory: Callable[[], Any], /) -> None: ...
    def __call__(self, type: Any, factory: Callable[[], Any] | None = None, /) -> Any:
        """Add a provider: a function that says what it opens, or a type and what opens it.

        Raises:
            TypeError: It cannot be called without arguments, or is a coroutine function.
        """
        function = type if factory is None else factory
        plain = inspect.unwrap(function) if callable(function) else None
        if plain is None or inspect.iscoroutinefunction(plain) or inspect.isgeneratorfunction(plain):
            raise TypeError(f"a provider is an asynchronous context manager function, not {shown(function)}")
        with contextlib.suppress(ValueError):  # a class without a signature
            try:
                inspect.signature(function).bind()
            except TypeError as error:
                raise TypeError(f"a provider is called without arguments ({error}): {shown(function)}") from None
        self._given.append((None if factory is None else (type,), function))
        return type if factory is None else None

    def with_values(self, values: Mapping[Any, Any]) -> Providers:
        """Answer the same, but that these types are provided by values, which nobody opens or closes.

        Args:
            values: The values by type; a provider that opens one of these types is left out.

        Raises:
            TypeError: A provider does not say its type.
        """
        others = Providers()
        for named, function in self._given:
            if (_provided_by(function) if named is None else named[0]) not in values:
                others._given.append((named, function))
        others._given += [((type,), partial(contextlib.nullcontext, value)) for type, value in values.items()]
        return others

    def plan(self, tasks: Iterable[Asking]) -> tuple[Provider, ...]:
        """Answer what is to be opened for tasks, in the order in which they ask.

        Raises:
            TypeError: A type that is asked for has no provider, or two have one type; a provider does not say its type, or
                a task of processes asks.
        """
        known: dict[Any, Callable[[], Any]] = {}
        for named, function in self._given:
            type = _provided_by(function) if named is None else named[0]
            if type in known:
                raise TypeError(
                    f"{type_name(type)} is provided twice, by {shown(known[type])} and by {shown(function)}: ask for "
                    f"Annotated[{type_name(type)}, ...], if there are two of them"
                )
            known[type] = function
        wanted: dict[Any, Provider] = {}
        for task in tasks:
            for parameter, type in task.injected.items():
                if task.run_in == "process":
                    raise TypeError(
                        f"task {task.name!r} runs in a process of its own, which shares nothing with the worker: its "
                        f"parameter {parameter!r} cannot be injected"
                    )
                if type not in known:
                    raise TypeError(
                        f"task {task.name!r} asks for {type_name(type)} by its parameter {parameter!r}, and nobody provides "
                        f"it: declare it with @app.provide, or app.provide({type_name(type)}, factory)"
                    )
                wanted.setdefault(type, Provider(type=type, factory=_factory(known[type])))
        return tuple(wanted.values())


def _factory(function: Callable[[], Any]) -> Factory:
    return asynccontextmanager(function) if inspect.isasyncgenfunction(function) else function


def _provided_by(function: Callable[[], Any]) -> Any:
    """Answer the type that a function's return annotation names."""
    plain = inspect.unwrap(function)
    annotation = getattr(plain, "__annotations__", {}).get("return")
    names = {}
    if inspect.isfunction(plain) and plain.__closure__ is not None:
        for name, cell in zip(plain.__code__.co_freevars, plain.__closure__, strict=True):
            with contextlib.suppress(ValueError):  # not assigned yet
                names[name] = cell.cell_contents
    holder = types.SimpleNamespace(__annotations__={"return": annotation})
    try:
        hint = typing.get_type_hints(holder, getattr(plain, "__globals__", {}), names, include_extras=True)["return"]
    except Exception as error:
        raise TypeError(f"the return annotation of provider {shown(function)} cannot be resolved: {error}") from error
    if get_origin(hint) not in _OPENERS or not get_args(hint):
        raise TypeError(
            f"provider {shown(function)} says what it opens by its return annotation, as in AsyncIterator[Pool], not "
            f"{annotation!r}; or give the type: app.provide(Pool, factory)"
        )
    return get_args(hint)[0]
