"""A handler's signature, read once: what may be enqueued for it, and how that becomes arguments again.

Theory of operation
    Annotations are resolved one by one. One that cannot be resolved yet (a class defined further down the module) is
    tried again by `resolve`, which whoever opens the app or runs the worker calls; a producer that never needs it is
    not bothered. A job parameter is known even when `Job` was imported for type checkers only.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, final, get_args, get_origin

from echomq.batches import JobBatch
from echomq.job import Job, SyncJob
from echomq.protocol.codec import join_path
from echomq.resources import INJECTED

_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_PLAIN: Final = (str, int, bool)
_JOBS: Final[dict[str, type]] = {"Job": Job, "SyncJob": SyncJob}
_BATCH: Final = re.compile(r"(?:\w+\.)*JobBatch(?:\[(?P<item>.*)\])?", re.DOTALL)

NOTHING: Final[Mapping[Any, Any]] = types.MappingProxyType({})
"""What there is to inject where nothing is."""
Structure = Callable[[Any, Any, str], Any]
"""Makes a decoded value one of a declared type: value, annotation, path."""


def is_async(function: Callable[..., Any]) -> bool:
    """Tell a coroutine function, or a callable object whose `__call__` is one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def check_findable(task: str, function: Callable[..., Any]) -> None:
    """Refuse a handler that another process could not find: it is looked up there by its module and name.

    Raises:
        TypeError: It is a lambda, a function within a function, or an object that has no such name.
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or "<" in name:
        raise TypeError(
            f"task {task!r}: a handler that runs in a process is found there by its module and name, so define it at the "
            f"top of a module, not as {function!r}"
        )


@final
class Signature:
    """What a handler takes, the job apart."""

    __slots__ = (
        "_bindable",
        "_cells",
        "_globals",
        "_hints",
        "_injected",
        "_inserted",
        "_job_at",
        "_job_defaults",
        "_keywords",
        "_most",
        "_positional",
        "_required",
        "_unresolved",
        "_var_keyword",
        "_var_positional",
        "job_parameter",
        "task",
    )  # fmt: skip

    def __init__(self, task: str, function: Callable[..., Any], *, batch: bool = False) -> None:
        """Read a handler's signature.

        Args:
            task: The task's name.
            function: The handler.
            batch: Whether it takes batches. What may be enqueued for it is then one argument: an item.

        Raises:
            TypeError: It cannot be a handler: a generator, two job parameters, or the wrong kind of job; or one of
                batches that is not declared so, or the other way round.
        """
        self.task = task
        plain = inspect.unwrap(function)
        while isinstance(plain, functools.partial):
            plain = inspect.unwrap(plain.func)
        if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
            raise TypeError(f"task {task!r}: a handler returns its result once, and a generator cannot: {function!r}")
        full = inspect.signature(function)
        scope = plain if hasattr(plain, "__globals__") else getattr(type(plain), "__call__", plain)  # noqa: B004
        self._globals: dict[str, Any] = getattr(scope, "__globals__", {})
        self._cells: dict[str, types.CellType] = {}
        if inspect.isfunction(plain) and plain.__closure__ is not None:
            self._cells.update(zip(plain.__code__.co_freevars, plain.__closure__, strict=True))
        self._hints: dict[str, Any] = {}
        self._unresolved: dict[str, tuple[Any, Exception | None]] = {
            name: (parameter.annotation, None)
            for name, parameter in full.parameters.items()
            if parameter.annotation is not inspect.Parameter.empty
        }
        if full.return_annotation is not inspect.Signature.empty:
            self._unresolved["return"] = (full.return_annotation, None)
        self._try_resolve()
        asked = self._find_injected(full)
        full = self._read_items(full, function, asked, batch=batch)
        self.job_parameter = None if batch else self._find_job(full, is_async(function))
        """The parameter that the worker fills with the job; None when there is none."""
        self._injected: Mapping[str, Any] | tuple[str, ...] = tuple(
            each for each in asked if each != self.job_parameter
        )
        self._read(full)

    def _read(self, full: inspect.Signature) -> None:
        names = list(full.parameters)
        filled = {self.job_parameter, *self._injected}
        rest = [parameter for name, parameter in full.parameters.items() if name not in filled]
        self._bindable = full.replace(parameters=rest)
        self._positional = [each.name for each in rest if each.kind in _POSITIONAL]
        self._var_positional = next((each.name for each in rest if each.kind is each.VAR_POSITIONAL), None)
        self._var_keyword = next((each.name for each in rest if each.kind is each.VAR_KEYWORD), None)
        self._keywords = {each.name for each in rest if each.kind in {each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY}}
        required = [each for each in rest if each.default is each.empty]
        self._required = sum(each.kind in _POSITIONAL for each in required)
        if any(each.kind is each.KEYWORD_ONLY for each in required):
            self._required = 1 << 30  # no call without keywords fits: always the long way
        self._most = (1 << 30) - 1 if self._var_positional else len(self._positional)
        self._job_at = -1
        self._job_defaults: tuple[Any, ...] | None = None
        if self.job_parameter is not None:
            job = full.parameters[self.job_parameter]
            if job.kind in _POSITIONAL:
                self._job_at = names.index(job.name)
            if job.kind is job.POSITIONAL_ONLY:
                self._job_defaults = tuple(full.parameters[name].default for name in names[: self._job_at])
        self._inserted = [
            (at, name)
            for at, (name, parameter) in enumerate(full.parameters.items())
            if name in self._injected and parameter.kind in _POSITIONAL
        ]

    # --- annotations ------------------------------------------------------------------------

    def _try_resolve(self) -> None:
        names = {}
        for name, cell in self._cells.items():
            with contextlib.suppress(ValueError):  # empty yet: a function that calls itself
                names[name] = cell.cell_contents
        for name, (annotation, _) in list(self._unresolved.items()):
            holder = types.SimpleNamespace(__annotations__={name: annotation})
            try:
                hints = typing.get_type_hints(holder, self._globals, names, include_extras=True)
            except Exception as error:  # noqa: BLE001 - an annotation is any expression
                self._unresolved[name] = (annotation, error)
            else:
                self._hints[name] = hints[name]
                del self._unresolved[name]

    def resolve(self) -> None:
        """Resolve what could not be at decoration.

        Raises:
            TypeError: An annotation cannot be resolved; the message says which.
        """
        if not self._unresolved:
            return
        self._try_resolve()
        for name, (annotation, error) in self._unresolved.items():
            what = "its return annotation" if name == "return" else f"the annotation of {name!r}"
            raise TypeError(
                f"task {self.task!r}: {what}, {annotation!r}, cannot be resolved ({error}): "
                "arguments are decoded by it, so import it at run time and define it in the module"
            )

    def _find_job(self, full: inspect.Signature, coroutine: bool) -> str | None:  # noqa: FBT001 - private
        found = []
        for name, parameter in full.parameters.items():
            wanted = self._job_type(name)
            if wanted is None:
                continue
            if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
                raise TypeError(f"task {self.task!r}: the job is one argument, not *{name}")
            right = Job if coroutine else SyncJob
            if wanted is not right:
                kind = "a coroutine function" if coroutine else "a plain function, which runs in a thread or a process,"
                raise TypeError(f"task {self.task!r}: {kind} is given a {right.__name__}, not a {wanted.__name__}")
            found.append(name)
        if len(found) > 1:
            raise TypeError(f"task {self.task!r}: one parameter is the job, not {' and '.join(found)}")
        return found[0] if found else None

    def _find_injected(self, full: inspect.Signature) -> tuple[str, ...]:
        """Answer the parameters that the worker fills by their type."""
        found = []
        for name, parameter in full.parameters.items():
            if parameter.default is not INJECTED:
                continue
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise TypeError(
                    f"task {self.task!r}: {name!r} is injected by its name, so it cannot be positional-only"
                )
            if parameter.annotation is parameter.empty:
                raise TypeError(f"task {self.task!r}: {name!r} is injected by its type, so it needs an annotation")
            found.append(name)
        return tuple(found)

    def _read_items(
        self, full: inspect.Signature, function: Callable[..., Any], asked: tuple[str, ...], *, batch: bool
    ) -> inspect.Signature:
        """Put the type of its items in the place of `JobBatch[T]`; answer the signature that producers see."""
        found = [name for name in full.parameters if self._is_batch(name)]
        if not batch:
            if found:
                raise TypeError(
                    f"task {self.task!r}: a handler of batches says so, as in app.task(batch=Batch(max_size=100))"
                )
            return full
        names = [*full.parameters]
        right = found == names[:1] != [] and full.parameters[names[0]].kind in _POSITIONAL and names[1:] == [*asked]
        if not is_async(function) or not right:
            raise TypeError(
                f"task {self.task!r}: a handler of batches is a coroutine function with one parameter, annotated "
                f"JobBatch or JobBatch[T], and after it none but those that are injected, not {function!r} with {full}"
            )
        for known in (self._hints, self._unresolved):
            known.pop("return", None)  # what the handler returns is nothing; each item has a result of its own
        (name,) = found
        if name in self._unresolved:
            annotation, error = self._unresolved[name]
            match = _BATCH.fullmatch(annotation)
            item = match["item"] if match else None
            if item is None:
                del self._unresolved[name]
            else:
                self._unresolved[name] = (item, error)
        else:
            item = self._hints[name] = (*get_args(self._plain_hint(name)), Any)[0]
        annotation = inspect.Parameter.empty if item is None or item is Any else item
        return full.replace(
            parameters=[inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY, annotation=annotation)]
        )

    def _is_batch(self, name: str) -> bool:
        if name in self._unresolved:
            annotation = self._unresolved[name][0]
            return isinstance(annotation, str) and _BATCH.fullmatch(annotation) is not None
        hint = self._plain_hint(name)
        return hint is JobBatch or get_origin(hint) is JobBatch

    def _plain_hint(self, name: str) -> Any:
        hint = self._hints.get(name)
        return get_args(hint)[0] if get_origin(hint) is Annotated else hint

    def _job_type(self, name: str) -> type | None:
        if name in self._unresolved and name != "return":
            annotation = self._unresolved[name][0]
            # Imported for type checkers only, as linters advise: known by its name.
            found = _JOBS.get(annotation.rpartition(".")[2]) if isinstance(annotation, str) else None
            if found is not None:
                del self._unresolved[name]
            return found
        hint = self._plain_hint(name)
        return hint if hint is Job or hint is SyncJob else None

    @property
    def injected(self) -> Mapping[str, Any]:
        """The type of each parameter whose default is `INJECTED`.

        Raises:
            TypeError: An annotation cannot be resolved.
        """
        if isinstance(self._injected, tuple):
            if not self._injected:
                return NOTHING
            self.resolve()
            self._injected = {name: self._hints[name] for name in self._injected}
        return self._injected

    @property
    def return_type(self) -> Any:
        """What the handler says it returns; Any when it does not say."""
        self.resolve()
        return self._hints.get("return", Any)

    # --- calls ------------------------------------------------------------------------------

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Refuse arguments that the handler could not be called with.

        Raises:
            TypeError: They do not fit; the message names the task and shows its signature.
        """
        if not kwargs and self._required <= len(args) <= self._most:
            return  # nearly always; the long way takes ten times as long
        try:
            self._bindable.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"task {self.task!r}: {error}; it takes {self._bindable}") from None

    def names_of(self, count: int) -> list[str]:
        """Name the parameters that so many positional arguments are for."""
        names = self._positional[:count]
        return names if self._var_positional is None or count <= len(names) else [*names, self._var_positional]

    def structure(
        self, args: list[Any], kwargs: dict[str, Any], structure: Structure
    ) -> tuple[list[Any], dict[str, Any]]:
        """Make decoded values those of the declared types, in place.

        Raises:
            DecodeError: One is not of its type; raised by `structure`.
            TypeError: An annotation cannot be resolved.
        """
        self.resolve()
        hints, positional = self._hints, self._positional
        for at, value in enumerate(args):
            name = positional[at] if at < len(positional) else self._var_positional
            hint = hints.get(name, Any) if name is not None else Any
            if not (hint is Any or (hint in _PLAIN and type(value) is hint)):
                args[at] = structure(value, hint, f"args[{at}]")
        for name, value in kwargs.items():
            hint = self._keyword_hint(name)
            if hint is not Any:
                kwargs[name] = structure(value, hint, join_path("kwargs", name))
        return args, kwargs

    def _keyword_hint(self, name: str) -> Any:
        if name in self._keywords:
            return self._hints.get(name, Any)
        hint = self._hints.get(self._var_keyword, Any) if self._var_keyword is not None else Any
        if get_origin(hint) is typing.Unpack:  # **kwargs: Unpack[SomeTypedDict]
            return typing.get_type_hints(get_args(hint)[0], include_extras=True).get(name, Any)
        return hint

    def check_direct(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Refuse a call of the plain function that leaves out what a worker would fill.

        Raises:
            TypeError: The message names the parameter.
        """
        missing = [name for name in self._injected if name not in kwargs]
        if missing:
            missing = [
                name for name in missing if not any(at < len(args) for at, each in self._inserted if each == name)
            ]
        if missing:
            raise TypeError(
                f"task {self.task!r}, called directly, has no worker to fill {', '.join(missing)}: pass it, as in "
                f"{missing[0]}=..."
            )

    def inject(
        self, job: Any, args: list[Any], kwargs: dict[str, Any], resources: Mapping[Any, Any] = NOTHING
    ) -> tuple[list[Any], dict[str, Any]]:
        """Add the job and the resources to the arguments where the handler wants them, in place.

        Args:
            job: The job, or what stands for it; None only for a handler that does not ask for it.
            args: The arguments by place.
            kwargs: The arguments by name.
            resources: The resources by type.
        """
        if not self._injected:
            return self._inject_job(job, args, kwargs)
        values = {name: resources[type] for name, type in self.injected.items()}
        before = [each for each in self._inserted if self._job_at < 0 or each[0] < self._job_at]
        self._insert(before, values, args)
        self._inject_job(job, args, kwargs)
        self._insert(self._inserted[len(before) :], values, args)
        kwargs.update(values)
        return args, kwargs

    @staticmethod
    def _insert(places: list[tuple[int, str]], values: dict[str, Any], args: list[Any]) -> None:
        # From the left, so that each place is that of the whole signature. What the arguments do not reach has a name.
        for at, name in places:
            if len(args) > at:
                args.insert(at, values.pop(name))

    def _inject_job(self, job: Any, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        name, at = self.job_parameter, self._job_at
        if name is None:
            return args, kwargs
        if self._job_defaults is not None and len(args) < at:
            args.extend(self._job_defaults[len(args) :])  # no keyword reaches a positional-only parameter
        if at >= 0 and (len(args) > at or self._job_defaults is not None):
            args.insert(at, job)
        else:
            kwargs[name] = job
        return args, kwargs
