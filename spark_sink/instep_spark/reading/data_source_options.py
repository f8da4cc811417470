"""The options of `format("instep")`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from instep.errors import ConfigurationError
from instep_spark.reading.change_filter import ChangeFilter, to_microseconds

__all__ = ["DataSourceOptions"]

_WHERE: Final = "format instep"
_NUMBERS: Final = {
    "startingcursor": ("starting_cursor", 0),
    "startingversion": ("starting_version", 1),
    "maxrowspertrigger": ("limit", 1),
    "partitions": ("parts", 1),
}
"""Option → field and least value."""
_TEXTS: Final = ("store", "lake", "path", "consumer", "stream", "class", "since", "until")


class DataSourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to read, from where on, and in which portions."""

    store: str = ""
    lake: str = ""
    change_filter: ChangeFilter = ChangeFilter()
    starting_cursor: int = 0
    starting_version: int | None = None
    limit: int = 100_000
    parts: int = 2

    @classmethod
    def read(cls, options: Mapping[str, str]) -> DataSourceOptions:
        """Options as Spark has them. Raises `ConfigurationError` naming the option."""
        given = {key.lower(): value for key, value in options.items()}
        unknown = sorted(given.keys() - _NUMBERS.keys() - set(_TEXTS))
        if unknown:
            raise ConfigurationError(
                f"unknown option {unknown[0]!r}",
                where=_WHERE,
                hint="options: store, lake, consumer, stream, class, since, until, "
                "startingCursor, startingVersion, maxRowsPerTrigger, partitions",
            )
        store, lake = given.get("store") or given.get("path", ""), given.get("lake", "")
        if bool(store) == bool(lake):
            raise ConfigurationError(
                "the options 'store' and 'lake' are both given"
                if store
                else "the option 'store' or 'lake' is missing",
                where=_WHERE,
                hint="one of them: the URL of a SQL store with a journal, or that of a lake",
            )
        for name, other in (("startingversion", "lake"), ("startingcursor", "store")):
            if name in given and not (lake if other == "lake" else store):
                raise ConfigurationError(f"the option {name!r} is one of a {other}", where=_WHERE)
        numbers: dict[str, Any] = {
            field: _number(name, given[name], least)
            for name, (field, least) in _NUMBERS.items()
            if name in given
        }
        change_filter = ChangeFilter(
            consumers=_names(given.get("consumer")),
            streams=_names(given.get("stream")),
            classes=_names(given.get("class"), ","),
            since_us=_moment("since", given.get("since")),
            until_us=_moment("until", given.get("until")),
        )
        return cls(store=store, lake=lake, change_filter=change_filter, **numbers)


def _names(value: str | None, separator: str | None = None) -> frozenset[str] | None:
    if value is None:
        return None
    names = value.split(separator) if separator else [value]
    return frozenset(name.strip() for name in names)


def _number(name: str, value: str, least: int) -> int:
    if not (value.isascii() and value.isdecimal()) or int(value) < least:
        raise ConfigurationError(
            f"the option {name!r} is no whole number from {least} on", where=_WHERE
        )
    return int(value)


def _moment(name: str, value: str | None) -> int | None:
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ConfigurationError(
            f"the option {name!r} is no time with a zone",
            where=_WHERE,
            hint="for example 2026-11-21T12:00:00Z",
        )
    return to_microseconds(moment)
