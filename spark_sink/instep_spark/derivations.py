"""What derivations bring to a lake, found by the entry points of `instep.derivations`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from instep.config.derivations import find_derivations
from instep.ports.lake import (
    EnvelopeColumns,
    LakeDerivation,
    LakeEntityTable,
    LakeEpisodeTable,
    LakeFunction,
    LakeReading,
    LakeView,
    TypedModel,
)

__all__ = [
    "ENTITY_TABLES",
    "EPISODE_TABLES",
    "EVENT_DETAILS",
    "EVENT_SQL",
    "FUNCTIONS",
    "READINGS",
    "VIEWS",
    "read_envelopes",
    "read_time",
    "typed_models",
]

_ALL: Final = tuple(one for one in find_derivations().values() if isinstance(one, LakeDerivation))
EPISODE_TABLES: Final[tuple[LakeEpisodeTable, ...]] = sum((one.episodes for one in _ALL), ())
ENTITY_TABLES: Final[tuple[LakeEntityTable, ...]] = sum((one.entities for one in _ALL), ())
VIEWS: Final[tuple[LakeView, ...]] = sum((one.views for one in _ALL), ())
READINGS: Final[tuple[LakeReading, ...]] = sum((one.readings for one in _ALL), ())
FUNCTIONS: Final[tuple[LakeFunction, ...]] = sum((one.functions for one in _ALL), ())
_NO_EVENT: Final = (
    "CAST(NULL AS STRUCT<event_start_at: TIMESTAMP, event_spread: STRING, event_precision: STRING>)"
)
EVENT_SQL: Final = f"coalesce({', '.join([*(one.event_sql for one in _ALL), _NO_EVENT])})"
"""SQL: a struct with how sure the event time of a row of `changes` is …"""
EVENT_DETAILS: Final = ("event_start_at", "event_spread", "event_precision")
"""… and what it has."""


def read_envelopes(envelopes: Sequence[bytes]) -> EnvelopeColumns:
    """What envelopes state; the first derivation that reads something counts."""
    none = [None] * len(envelopes)
    times, addresses = EnvelopeColumns(none, none)
    for number, one in enumerate(_ALL):
        read = one.read_envelopes(envelopes)
        times = _filled(times, read.event_times) if number else read.event_times
        addresses = _filled(addresses, read.parent_addresses) if number else read.parent_addresses
    return EnvelopeColumns(times, addresses)


def _filled(first: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    return [other if one is None else one for one, other in zip(first, others, strict=True)]


def read_time(text: str | None) -> int | None:
    """Microseconds since 1970 of an event time; None for what is no time."""
    return next((us for one in _ALL if (us := one.read_time(text)) is not None), None)


@cache
def typed_models() -> tuple[TypedModel, ...]:
    """The data models with typed classes."""
    return tuple(one.typed() for one in _ALL if one.typed is not None)
