"""One form for all states that differ by names alone.

A state is walked once. What is a name (a token, the number of an attempt or of a log) is replaced
by its rank among those that are there; what is a time by its distance from now, up to an age beyond
which nothing but the order counts; what is an offset by its rank, where neighbours stay neighbours.

What kind a number is of, its field tells: by a table, so that a field that nobody has classified
stops the exploration and is no silent loss of precision.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Mapping
from enum import Enum
from operator import attrgetter
from typing import Any, Final

import msgspec

__all__ = ["Canonical", "Encode", "Fields", "clone", "skip"]

_FOR_EVER_US = 1 << 62
_PLAIN: Final = (bool, str, float, type(None))
"""Kinds of values that count as they are."""

Encode = Callable[["Canonical", Any], None]


def skip(out: Canonical, value: Any) -> None:
    """A field that decides nothing, or that never changes."""


class Canonical:
    """Builds the key of one state. `now_us` and ages are in microseconds."""

    def __init__(self, fields: Fields, now_us: int, *, eldest_us: int) -> None:
        """`eldest_us`: beyond this age only the order of times counts."""
        self._fields = fields
        self._now_us = now_us
        self._eldest_us = eldest_us
        self._out: list[Any] = []
        self.literal = self._out.append
        """A value that counts as it is."""
        self._ranked: dict[str, list[int]] = {}
        """For each kind: where in the output its values stand."""
        self.notes: dict[str, Any] = {}
        """What the world knows, for its encoders."""

    # -- leaves ----------------------------------------------------------------------------------

    def time(self, at_us: int) -> None:
        """A time in microseconds; 0 is never."""
        age_us = self._now_us - at_us
        if age_us <= self._eldest_us and at_us != _FOR_EVER_US:
            self._out.append(age_us)
        elif at_us in (0, _FOR_EVER_US):
            self._out.append(str(at_us))
        else:
            self.ranked("old", at_us)

    def ranked(self, kind: str, value: int) -> None:
        """A name: its rank among those of its kind. Offsets are of kinds that begin so."""
        places = self._ranked.get(kind)
        if places is None:
            places = self._ranked[kind] = []
        places.append(len(self._out))
        self._out.append(value)

    # -- structure -------------------------------------------------------------------------------

    def walk(self, value: Any) -> None:
        """A value of any kind that needs no name."""
        kind = type(value)
        if kind in _PLAIN:
            self._out.append(value)
        elif kind is int:
            raise TypeError(f"{value} is a number, and no field tells of which kind")
        elif kind is tuple or kind is list:
            self._out.append(len(value))
            for one in value:
                self.walk(one)
        elif kind is dict:
            self._out.append(len(value))
            for key in sorted(value):
                self._out.append(key)
                self.walk(value[key])
        elif kind is set or kind is frozenset:
            self._out.append(tuple(sorted(value)))
        elif isinstance(value, Enum):
            self._out.append(value.value)
        else:
            self._walk_fields(value)

    def _walk_fields(self, value: Any) -> None:
        out, walk = self._out, self.walk
        read, encoders = self._fields.of(value)
        for encode, one in zip(encoders, read(value), strict=True):
            if encode is not None:
                encode(self, one)
            elif type(one) in _PLAIN:
                out.append(one)
            else:
                walk(one)

    def key(self) -> bytes:
        """The key of what was walked."""
        out = self._out
        for kind, places in self._ranked.items():
            values = sorted({out[place] for place in places})
            ranks = _neighbours(values) if kind.startswith("offset") else range(len(values))
            rank_of = dict(zip(values, ranks, strict=True))
            for place in places:
                out[place] = rank_of[out[place]]
        return marshal.dumps(out)


class Fields:
    """How each field is encoded, by its name, whatever object has it."""

    def __init__(self, encoders: Mapping[str, Encode]) -> None:
        self._encoders = encoders
        self._of_kind: dict[type, tuple[Callable[[Any], tuple[Any, ...]], list[Encode | None]]] = {}

    def of(self, value: Any) -> tuple[Callable[[Any], tuple[Any, ...]], list[Encode | None]]:
        """What reads the fields of an object that count, and their encoders; None: a value that
        needs no name.
        """
        kind = type(value)
        found = self._of_kind.get(kind)
        if found is None:
            is_struct = isinstance(value, msgspec.Struct)
            names = value.__struct_fields__ if is_struct else sorted(vars(value))
            counting = [name for name in names if self._encoders.get(name) is not skip]
            for name in counting:
                if type(getattr(value, name)) is int and name not in self._encoders:
                    raise TypeError(f"the field {name!r} of {kind.__name__} is not classified")
            encoders = [self._encoders.get(name) for name in counting]
            found = self._of_kind[kind] = _reader(counting), encoders
        return found


def _reader(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


def _neighbours(offsets: list[int]) -> list[int]:
    """Ranks of offsets, where a gap is one step wider, however wide it is."""
    ranks = []
    rank = 0
    last: int | None = None
    for offset in offsets:
        if last is not None:
            rank += 1 if offset == last + 1 else 2
        ranks.append(rank)
        last = offset
    return ranks


def clone(thing: Any, rooms: tuple[str, ...]) -> Any:
    """A copy of a mutable machine: objects of the modules below `rooms` are copied, and so are
    lists, sets and dictionaries; frozen values are shared.
    """
    copy = object.__new__(type(thing))
    into = copy.__dict__
    for name, value in thing.__dict__.items():
        kind = type(value)
        if kind is dict or kind is set or kind is list:
            into[name] = value.copy()
        elif kind.__module__.startswith(rooms) and hasattr(value, "__dict__"):
            into[name] = clone(value, rooms)
        else:
            into[name] = value
    return copy
