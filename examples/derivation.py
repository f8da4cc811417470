"""A derivation of a class that nobody has heard of: how long doors stood open.

A provider states entities of the class DOOR, `{"state": "OPEN"}` or `{"state": "SHUT"}`. The store
keeps a row for each time that a door was open, in the transaction of the entities. In a package of
yours, this is the whole plug-in, with one entry point in its pyproject.toml:

    [project.entry-points."instep.derivations"]
    doors = "house.doors:derivation"

Then `doors = true` is a key of the sink. Run it: it checks the derivation, and prints what a store
derives.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from importlib.metadata import EntryPoint
from typing import Annotated, Any, ClassVar, Final
from unittest.mock import patch

import msgspec

from instep import Consumer, Record, RecordChunk, RecordType
from instep.config import derivations
from instep.ports import (
    Changes,
    Column,
    ColumnType,
    Index,
    Query,
    Row,
    StatementDerivation,
    Statements,
    StatementTable,
    StoreReader,
    Update,
    View,
    ViewColumn,
)
from instep.testing import ScriptedSource, check_derivation
from instep_sql import SqlStore

OPENINGS: Final = StatementTable(
    name="house_opening",
    columns=(
        Column("key"),
        Column("number", ColumnType.INTEGER),
        Column("opened_at_us", ColumnType.LONG),
        Column("shut_at_us", ColumnType.LONG, nullable=True),
    ),
    key=("key", "number"),
    indexes=(Index("house_opening_open", ("stream_no",), where_null="shut_at_us"),),
    latest="number",
    open="shut_at_us",
    retention="door_retention_records",
)


class DoorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The keys that the sink has for it."""

    doors: bool | None = None
    """Whether the store keeps when doors were open (`house_opening`); None: as it does already."""
    door_retention_records: Annotated[int, msgspec.Meta(ge=1)] = 100_000
    """The number of newest openings kept."""


class Doors(StatementDerivation):
    """One row for each time that a door was open."""

    name = "doors"
    version = "1"
    words = "openings of doors"
    classes = frozenset({"DOOR"})
    ends_as = frozenset({"DOOR", ""})  # a header-only end names no class
    options = DoorOptions
    tables = (OPENINGS,)
    views = (
        View(
            "house_openings",
            OPENINGS.name,
            (
                ViewColumn("door", "r.key"),
                ViewColumn("opened_at", "r.opened_at_us", "time"),
                ViewColumn("open_s", "(r.shut_at_us - r.opened_at_us) / 1e6"),
            ),
        ),
    )
    queries: ClassVar[Mapping[str, Query]] = {
        "": Query(
            "SELECT r.*, s.consumer FROM house_opening AS r"
            " JOIN instep_stream AS s ON s.id = r.stream_no WHERE {more}",
            {"key": "r.key = :key"},
            {"id": ("r.id", -1)},
        )
    }

    def derive(self, statements: Statements, before: Mapping[str, Sequence[Row]]) -> Changes:
        """Open and shut, in order; what is said again changes nothing."""
        last = {row[1]: list(row) for row in before[OPENINGS.name]}
        touched: dict[tuple[str, int], list[Any]] = {}
        for record in statements.records:
            row = last.get(record.key)
            is_open = row is not None and row[4] is None
            opens = not record.ends and json.loads(record.body).get("state") == "OPEN"
            if opens and not is_open:
                number = 1 if row is None else row[2] + 1
                row = [None, record.key, number, record.appended_at_us, None]
            elif row is not None and is_open and not opens:
                row[4] = max(record.appended_at_us, row[3])
            else:
                continue
            last[record.key] = touched[record.key, row[2]] = row
        rows = touched.values()
        return Changes(
            {OPENINGS.name: [tuple(row[1:]) for row in rows if row[0] is None]},
            [Update(OPENINGS.name, ("shut_at_us",), [(r[4], r[0]) for r in rows if r[0]])],
        )

    def end_swept(self, table: str, rows: Sequence[Row], at_us: int) -> Changes:
        """A door that is no longer there stands open no longer."""
        return Changes(
            updated=[Update(table, ("shut_at_us",), [(max(at_us, row[3]), row[0]) for row in rows])]
        )


derivation: Final = Doors()


async def openings(reader: StoreReader, key: str | None = None) -> AsyncIterator[tuple[str, float]]:
    """Each time that a door (or this one) was open, and for how many seconds; inf: it still is."""
    async for row in reader.derived("doors", key=key):
        shut_at_us = row["shut_at_us"]
        lasted = float("inf") if shut_at_us is None else (shut_at_us - row["opened_at_us"]) / 1e6
        yield row["key"], lasted


def stated(at_s: int, key: str, state: str) -> Record:
    """What the provider says at that time; an empty state is the end of the door."""
    kind = RecordType.CREATE_UPDATE if state else RecordType.DELETE
    body = json.dumps({"state": state}).encode() if state else b""
    at_us = 1_795_341_600_000_000 + at_s * 1_000_000
    return Record("scripted", key, kind, f"t{at_s}", at_us, "0", at_s, "DOOR", body)


LOG: Final = [
    stated(1, "front", "OPEN"),
    stated(2, "back", "OPEN"),
    stated(3, "front", "OPEN"),
    stated(9, "front", "SHUT"),
    stated(11, "back", ""),
    stated(12, "front", "OPEN"),
]


async def main() -> None:
    """Check it, then let a store keep it, as if it were installed."""
    await check_derivation(derivation, LOG)
    point = EntryPoint("doors", f"{__name__}:derivation", "instep.derivations")
    with patch.object(derivations, "entry_points", lambda **_: [point]):
        async with SqlStore("sqlite://", doors=True) as store:
            source = ScriptedSource([RecordChunk(LOG)])
            async with Consumer("house", source, store) as consumer:
                await consumer.aligned(30)
                async for door, lasted_s in openings(store.reader):
                    print(f"{door}: {lasted_s:g} s")


if __name__ == "__main__":
    asyncio.run(main())
