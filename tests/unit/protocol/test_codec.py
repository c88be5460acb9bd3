"""JSON that comes back as it was written, or is refused by whoever wrote it."""

from __future__ import annotations

import base64
import collections
import dataclasses
import datetime as dt
import enum
import json
import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple, NewType, TypedDict

import attrs
import cattrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomq.errors import DecodeError, EncodeError
from echomq.protocol.codec import Codec, JsonCodec

CODEC: Codec = JsonCodec()
JSON = JsonCodec()


class Color(enum.Enum):
    RED = 1
    BLUE = "blue"


class Word(enum.StrEnum):
    YES = "yes"


class Number(enum.IntEnum):
    ONE = 1


@attrs.frozen
class Picture:
    path: Path
    size: int = 128
    tags: list[str] = attrs.Factory(list)
    parts: list[Picture] = attrs.Factory(list)
    when: dt.datetime | None = None
    color: Color = Color.RED


@dataclasses.dataclass
class Box:
    _hidden: int
    by_number: dict[int, Picture]


class Point(NamedTuple):
    x: int
    y: float


class Options(TypedDict, total=False):
    size: int
    names: list[str]


UserId = NewType("UserId", int)
PICTURE = Picture(Path("a.png"), 64, ["x"], [Picture(Path("b"))], dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC))

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(PLAIN)
def test_json_round_trips_plain_values(value: Any) -> None:
    """Whatever JSON can hold comes back equal without a declared type, and any JSON reader reads it."""
    data = CODEC.encode(value)
    assert CODEC.decode(data) == value
    assert json.loads(data) == value


@pytest.mark.parametrize(
    ("value", "type"),
    [
        (PICTURE, Picture),
        (Box(3, {7: PICTURE}), Box),
        (Point(1, 2.5), Point),
        ({"size": 3, "names": ["a"]}, Options),
        (Color.BLUE, Color),
        (Word.YES, Word),
        (Number.ONE, Number),
        (Path("/a/b"), Path),
        (PurePosixPath("/a/b"), PurePosixPath),
        (Decimal("1.10"), Decimal),
        (uuid.UUID(int=5), uuid.UUID),
        (dt.datetime(2026, 1, 2, 3, 4), dt.datetime),  # noqa: DTZ001 - naive ones come back naive
        (dt.datetime(2026, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2))), dt.datetime),
        (dt.date(2026, 1, 2), dt.date),
        (dt.time(1, 2, 3), dt.time),
        (dt.timedelta(days=1, milliseconds=5), dt.timedelta),
        (b"\x00\xff", bytes),
        (bytearray(b"\x00"), bytearray),
        (b"", bytes),
        ({1, 2}, set[int]),
        (frozenset({"a"}), frozenset[str]),
        ((1, "a"), tuple[int, str]),
        ((1, 2, 3), tuple[int, ...]),
        ((), tuple[int, ...]),
        ([Path("a")], list[Path]),
        ((1, 2), Sequence[int]),
        (collections.deque([1, 2]), collections.deque[int]),
        ({1: "a"}, dict[int, str]),
        ({1.5: "a"}, dict[float, str]),
        ({True: 1}, dict[bool, int]),
        ({Color.RED: 1, Color.BLUE: 2}, dict[Color, int]),
        ({Number.ONE: 1}, dict[Number, int]),
        ({uuid.UUID(int=5): {1}}, dict[uuid.UUID, set[int]]),
        ({dt.date(2026, 1, 2): 1}, dict[dt.date, int]),
        ({Path("a"): Path("b")}, Mapping[Path, Path]),
        (collections.Counter("abca"), collections.Counter[str]),
        (collections.defaultdict(list, {"a": [1]}), collections.defaultdict[str, list[int]]),
        (UserId(5), UserId),
        ("x", Literal["x", "y"]),
        (None, None),
        (None, int | None),
        (5, int | str | None),
        (Path("a"), Path | None),
        (2.0, float),
        (2**64 - 1, int),
        ([1, "a", None], list),
        ({"a": [1]}, dict),
        ({"a": [1]}, Any),
    ],
)
def test_json_round_trips_typed_values(value: Any, type: Any) -> None:
    """With its declared type a value comes back equal and of its own type."""
    back = CODEC.decode(CODEC.encode(value), type)
    assert back == value
    assert back.__class__ is value.__class__


def test_json_is_readable_by_others() -> None:
    """What goes over the wire is what a program in another language would expect."""
    value = [
        Path("a"),
        b"\xff",
        dt.timedelta(seconds=1.5),
        {1: Color.BLUE},
        {3},
        (1, 2),
        dt.date(2026, 1, 2),
        Decimal("0.1"),
    ]
    assert json.loads(CODEC.encode(value)) == ["a", "/w==", 1.5, {"1": "blue"}, [3], [1, 2], "2026-01-02", "0.1"]


def test_json_reads_an_int_where_a_float_is_declared() -> None:
    """JSON writes 2 and 2.0 alike in many languages, so an integer is a good float."""
    assert CODEC.decode(b"2", float) == 2.0
    assert isinstance(CODEC.decode(b"2", float), float)


def test_json_ignores_fields_of_newer_producers() -> None:
    """A field that the declared class does not have is left out."""
    assert CODEC.decode(b'{"path":"a","new":1}', Picture) == Picture(Path("a"))


@pytest.mark.parametrize(
    ("data", "type", "path", "message"),
    [
        ('"x"', int, "", "expected int, got 'x'"),
        ('"1"', int, "", "expected int, got '1'"),
        ("1.5", int, "", "expected int, got 1.5"),
        ("true", int, "", "expected int, got True"),
        ("1", bool, "", "expected bool, got 1"),
        ("1", str, "", "expected str, got 1"),
        ('"1"', float, "", "expected float, got '1'"),
        ("true", float, "", "expected float, got True"),
        ("1", None, "", "expected None, got 1"),
        ("123456789012345678901234567890", int, "", "expected int, got 1.2345678901234568e+29"),
        ('"abc"', list[str], "", "expected list[str], got 'abc'"),
        ('{"a":1}', set[str], "", "expected set[str], got {'a': 1}"),
        ('"ab"', tuple[str, str], "", "expected tuple[str, str], got 'ab'"),
        ("[1]", tuple[int, int], "", "expected tuple[int, int], got [1]"),
        ('[1,"x"]', list[int], "[1]", "expected int, got 'x'"),
        ('[[1,["x"]]]', list[tuple[int, list[int]]], "[0][1][0]", "expected int, got 'x'"),
        ('{"a":"x"}', dict[str, int], "a", "expected int, got 'x'"),
        ('{"a b":"x"}', dict[str, int], "['a b']", "expected int, got 'x'"),
        ('{"1":"x"}', dict[int, int], "['1']", "expected int, got 'x'"),
        ('{"x":1}', dict[int, int], "", "expected int as key, got 'x'"),
        ('{"k":{"x":1}}', dict[str, dict[int, int]], "k", "expected int as key, got 'x'"),
        ('{"path":"a","size":"x"}', Picture, "size", "expected int, got 'x'"),
        ('{"path":"a","tags":"x"}', Picture, "tags", "expected list[str], got 'x'"),
        (
            '{"path":"a","parts":[{"path":"b","parts":[{}]}]}',
            Picture,
            "parts[0].parts[0].path",
            "required, and missing",
        ),
        ("{}", Picture, "path", "required, and missing"),
        ('"a"', Picture, "", "expected Picture, got 'a'"),
        ("[]", Picture, "", "expected Picture, got []"),
        ("null", Picture, "", "expected Picture, got None"),
        ('{"_hidden":1,"by_number":{"3":{"path":4}}}', Box, "by_number['3'].path", "expected Path, got 4"),
        ('["a",1]', Point, "[0]", "expected int, got 'a'"),
        ('"green"', Color, "", "expected Color, got 'green'"),
        ('"nope"', dt.datetime, "", "expected datetime, got 'nope'"),
        ("5", dt.datetime, "", "expected datetime, got 5"),
        ('"nope"', uuid.UUID, "", "expected UUID, got 'nope'"),
        ('"nope"', Decimal, "", "expected Decimal, got 'nope'"),
        ('"!!"', bytes, "", "expected bytes, got '!!'"),
        ('"x"', int | None, "", "expected int | None, got 'x'"),
        ('"z"', Literal["x"], "", "expected Literal['x'], got 'z'"),
        ('{"names":[1]}', Options, "names[0]", "expected str, got 1"),
        ("{", Any, "", "expected JSON, got b'{'"),
        ("", Any, "", "expected JSON, got b''"),
        ("NaN", Any, "", "expected JSON, got b'NaN'"),
    ],
)
def test_json_names_what_does_not_fit(data: str, type: Any, path: str, message: str) -> None:
    """Decoding is strict, and its error says where, what was declared and what came."""
    with pytest.raises(DecodeError) as caught:
        CODEC.decode(data.encode(), type)
    assert caught.value.path == path
    assert str(caught.value).removeprefix(f"{path}: ").startswith(message)


def test_json_refuses_bytes_that_are_not_text() -> None:
    """Bytes of some other format are refused, with what they are."""
    with pytest.raises(DecodeError, match="expected JSON"):
        CODEC.decode(b"\xff\xfe\x00")


def test_structure_continues_a_path() -> None:
    """A part of a payload is named by its place in the whole."""
    with pytest.raises(DecodeError) as caught:
        JSON.structure({"path": "a", "size": "x"}, Picture, "args[0]")
    assert str(caught.value) == "args[0].size: expected int, got 'x'"


class Opaque:
    """Nothing that JSON or cattrs knows."""

    def __repr__(self) -> str:
        raise RuntimeError


def cyclic() -> list[Any]:
    """Make a list that holds itself."""
    value: list[Any] = []
    value.append(value)
    return value


def deep(depth: int) -> list[Any]:
    """Nest lists."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "path", "message"),
    [
        (float("nan"), "", "nan is not JSON"),
        ({"a": [1, None, {"b": float("inf")}]}, "a[2].b", "inf is not JSON"),
        ([Path("a"), {1: float("-inf")}], "[1]['1']", "-inf is not JSON"),
        (2**64, "", "the integer does not fit in 64 bits"),
        ({"x": [attrs.evolve(PICTURE, size=-(2**63) - 1)]}, "x[0].size", "the integer does not fit in 64 bits"),
        ("\ud800", "", "'\\ud800' has lone surrogates"),
        ({"\ud800": 1}, "", "the key '\\ud800' has lone surrogates"),
        ({1: "a", "1": "b"}, "", "two keys become the same text"),
        ({None: 1}, "", "the key None of type None cannot be text"),
        ({(1, 2): 1}, "", "the key (1, 2) of type tuple cannot be text"),
        ({float("nan"): 1}, "", "the key nan of type float cannot be text"),
        ({"a": [Opaque()]}, "a[0]", "cannot encode <Opaque> of type Opaque"),
        (1j, "", "cannot encode 1j of type complex"),
        (object, "", "cannot encode <class 'object'> of type type"),
        ((x for x in "a"), "", "cannot encode <generator object"),
        (cyclic(), "", "nested too deeply, or within itself"),
    ],
)
def test_json_refuses_what_it_would_lose(value: Any, path: str, message: str) -> None:
    """What JSON cannot hold, or would change in silence, is refused where it is written, named by its path."""
    with pytest.raises(EncodeError) as caught:
        CODEC.encode(value)
    assert caught.value.path == path
    assert str(caught.value).removeprefix(f"{path}: ").startswith(message)


def test_json_refuses_deep_nesting_either_way() -> None:
    """Nesting that would exhaust a reader is an error of ours, never a RecursionError."""
    assert CODEC.decode(CODEC.encode(deep(200))) == deep(200)
    for depth in (300, 100_000):
        with pytest.raises(EncodeError):
            CODEC.encode(deep(depth))
        with pytest.raises(DecodeError):
            CODEC.decode(b"[" * depth * 10 + b"]" * depth * 10, list[Any])


def test_json_null_within_a_value_is_no_nan() -> None:
    """A null that stands for None, or in text, is written."""
    assert CODEC.encode([None, "null", 1.0]) == b'[null,"null",1.0]'


def test_json_takes_hooks_of_its_user() -> None:
    """A codec can be taught a type, also one that orjson would write by itself."""

    def configure(converter: cattrs.Converter) -> None:
        converter.register_unstructure_hook(dt.date, lambda day: day.toordinal())
        converter.register_structure_hook(dt.date, lambda number, _: dt.date.fromordinal(number))

    codec = JsonCodec(configure)
    day = dt.date(2026, 1, 2)
    assert codec.encode([day]) == b"[%d]" % day.toordinal()
    assert codec.decode(codec.encode(day), dt.date) == day
    assert codec.encode({"a": [1, b"x"]}) == b'{"a":[1,"' + base64.b64encode(b"x") + b'"]}'


def test_json_wraps_what_a_hook_raises() -> None:
    """A class that raises while it is read or written fails that value readably, whatever it raised."""

    def configure(converter: cattrs.Converter) -> None:
        def fail(*_: Any) -> None:
            raise LookupError("no luck")

        converter.register_unstructure_hook(Opaque, fail)
        converter.register_structure_hook(Opaque, fail)

    codec = JsonCodec(configure)
    with pytest.raises(EncodeError, match="Opaque: no luck"):
        codec.encode(Opaque())
    with pytest.raises(DecodeError, match=r"expected Opaque, got 5 \(no luck\)"):
        codec.decode(b"5", Opaque)
