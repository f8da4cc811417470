"""What engines spell differently. Answers are written in the SQL that they share, with the names
that Spark has for functions; JSON is read by readings alone, for which each engine has its own SQL.

What is shared: ANSI's queries, joins, windows and common table expressions, `GROUP BY ALL`,
`* EXCEPT (…)`, `max_by`, `regexp_replace` of what stands at the begin, `IS NOT DISTINCT FROM`.
A literal such as `1e6` is a DOUBLE. Times are compared in microseconds: `unix_micros(…)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from instep.ports.lake import LakeList, LakeMember, LakeReading

__all__ = ["DUCKDB", "SPARK", "Dialect"]

_STANDING: Final = ("consumer", "stream", "id", "key", "class")
_HISTORY: Final = ("ordinal", "valid_from", "valid_to", "valid_to_basis", "open")
_READ: Final = ("uuid", "body", "parent_address")


class Dialect(msgspec.Struct, frozen=True):
    """The SQL of one engine."""

    name: str
    renamed: Mapping[str, str]
    """What answers say → what the engine says."""
    member: Callable[[str, tuple[str, ...]], str]
    """The text under a path in JSON: a text as it is, anything else as JSON; null where it is not
    there, is null, or the JSON is none."""
    texts: Callable[[str, str], str]
    """A member of each object of a list, which is JSON, as an array of texts."""
    exploded: Callable[[str, str, str], str]
    """Select items for the members of a list, which is JSON: its place from 0, and the member."""
    timestamp: Callable[[int], str]
    """A time in microseconds since 1970."""

    def spell(self, sql: str) -> str:
        """An answer in the SQL of the engine."""
        for shared, own in self.renamed.items():
            sql = sql.replace(shared, own)
        return sql

    def reading(self, reading: LakeReading) -> str:
        """The query of a reading, over `entities` or `entity_history`."""
        kept = (*_STANDING, *(_HISTORY if reading.history else ()))
        source = "entity_history" if reading.history else "entities"
        classes = ", ".join(f"'{one}'" for one in reading.classes)
        chosen = f" WHERE class IN ({classes})" if classes else ""
        query = f"SELECT {', '.join((*kept, *_READ))} FROM {source}{chosen}"
        within = "body"
        positions = []
        for number, one in enumerate(reading.lists):
            item = f"item_{number}"
            query = f"SELECT *, {self._rows_of(one, within, item)} FROM ({query}) AS q{number}"
            within = item
            positions.append(one.position)
        own = [f"{self._value(one, 'body')} AS {one.name}" for one in reading.members]
        listed = [f"{self._value(one, within)} AS {one.name}" for one in reading.listed]
        return f"SELECT {', '.join((*kept, *own, *positions, *listed))} FROM ({query}) AS q"

    def _rows_of(self, one: LakeList, within: str, item: str) -> str:
        return self.exploded(self._first(within, one.paths), one.position, item)

    def _first(self, source: str, paths: tuple[tuple[str, ...], ...]) -> str:
        found = [self.member(source, path) for path in paths]
        return found[0] if len(found) == 1 else f"coalesce({', '.join(found)})"

    def _value(self, one: LakeMember, source: str) -> str:
        if one.parent:
            stated = rf"""regexp_extract(parent_address, '"{one.parent}-uuid:([^"]*)"', 1)"""
            return f"nullif({stated}, '')"
        if not one.paths:
            own = self.member(source, ("uuid",))
            return f"coalesce({own}, nullif(uuid, ''), key)"
        if one.kind == "texts":
            *above, last = one.paths[0]
            return self.texts(self.member(source, tuple(above)), last)
        stated = self._first(source, one.paths)
        match one.kind:
            case "number":
                return f"try_cast({stated} AS DOUBLE)"
            case "word":
                return f"nullif(regexp_extract({stated}, '[A-Z][A-Z0-9_]*', 0), '')"
            case "identity":
                short = f"replace(trim(regexp_replace({stated}, '(?s)^.*:', '')), '-', '_')"
                if one.prefix:
                    short = f"regexp_replace({short}, '^{one.prefix}', '')"
                return f"nullif({short}, '')"
            case _:
                return stated


def _spark_member(source: str, path: tuple[str, ...]) -> str:
    steps = "".join(one if one.startswith("[") else f"[\\'{one}\\']" for one in path)
    return f"get_json_object({source}, '${steps}')"


def _duckdb_path(path: tuple[str, ...]) -> str:
    return "$" + "".join(one if one.startswith("[") else f'."{one}"' for one in path)


SPARK: Final = Dialect(
    "spark",
    {},
    member=_spark_member,
    texts=lambda objects, member: (
        f"transform(from_json({objects}, 'ARRAY<STRING>'), "
        f"one -> {_spark_member('one', (member,))})"
    ),
    exploded=lambda objects, position, item: (
        f"posexplode(from_json({objects}, 'ARRAY<STRING>')) AS ({position}, {item})"
    ),
    timestamp=lambda us: f"timestamp_micros({us})",
)


def _duckdb_exploded(objects: str, position: str, item: str) -> str:
    members = f"json_extract(try_cast({objects} AS JSON), '$[*]')"
    return (
        f"generate_subscripts({members}, 1) - 1 AS {position}, "
        f"CAST(unnest({members}) AS VARCHAR) AS {item}"
    )


DUCKDB: Final = Dialect(
    "duckdb",
    {
        "unix_micros(": "epoch_us(",
        "timestamp_micros(": "make_timestamp(",
        "current_timestamp()": "(now() AT TIME ZONE 'UTC')",
        "* EXCEPT (": "* EXCLUDE (",
    },
    member=lambda source, path: f"(try_cast({source} AS JSON) ->> '{_duckdb_path(path)}')",
    texts=lambda objects, member: (
        f"CASE WHEN {objects} IS NOT NULL THEN list_transform(json_extract("
        f"try_cast({objects} AS JSON), '$[*]'), lambda one: one ->> '{_duckdb_path((member,))}') "
        "END"
    ),
    exploded=_duckdb_exploded,
    timestamp=lambda us: f"make_timestamp({us})",
)
