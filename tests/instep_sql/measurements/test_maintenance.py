"""Series of measurements in a store (TR-548 3.9.2.6)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import text

from instep.errors import DerivationOffError
from instep.model.records import Record, RecordType
from instep_sql import SqlStore
from instep_tapi.derivations.measurements import Measurement, measurements
from tests.instep_sql.measurements.measurements_kit import (
    CURRENT_ADDRESS,
    JOB,
    current,
    history,
    record,
)
from tests.instep_sql.store_kit import Stage, columns_of, create_update, stream_info

pytestmark = pytest.mark.asyncio

SERIES = f"{JOB}/c1"


def stated(at_s: int, minutes: int, **members: Any) -> Record:
    return record(
        "PM_HISTORY_DATA",
        at_s,
        history(minutes, **members),
        key=f"h{minutes}",
        parents=CURRENT_ADDRESS,
    )


@asynccontextmanager
async def stage(database: str, **options: Any) -> AsyncIterator[Stage]:
    async with SqlStore(database, **{"measurements": True, **options}) as store:
        await store.open("c")
        yield Stage(store, await store.position(stream_info()))


async def found(at: Stage, **chosen: Any) -> list[Measurement]:
    return [one async for one in measurements(at.store.reader, **chosen)]


async def ends(at: Stage, **chosen: Any) -> list[int]:
    return [one.end_us // 60_000_000 for one in await found(at, **chosen)]


@pytest.mark.parametrize("columns", [False, True], ids=["records", "columns"])
async def test_3_9_2_6_a_series_keeps_what_the_log_and_the_entities_forget(
    database: str, columns: bool
) -> None:
    async with stage(database) as at:
        records = [
            *(create_update("n", 1), stated(1_000, 15), stated(2_000, 30), stated(2_100, 45)),
            record("PM_HISTORY_DATA", 2_200, {}, key="h15", kind=RecordType.DELETE),
        ]
        await at.commit(*(columns_of(records) if columns else records))
        assert await ends(at) == [15, 30, 45]
        (one,) = await found(at, since_us=30 * 60_000_000, until_us=45 * 60_000_000)
        assert one == Measurement(
            consumer="c",
            stream=one.stream,
            series=SERIES,
            key="h30",
            entity_class="PM_HISTORY_DATA",
            end_us=1_800_000_000,
            length_us=900_000_000,
            complete=True,
            suspect=False,
            stated_at_us=2_000_000_000,
            body=one.body,
        )
        assert one.begin_us == 900_000_000
        assert json.loads(one.body)["local-id"] == "h30"
        assert await ends(at, series="another") == []
        assert await ends(at, consumer="c", series=SERIES) == [15, 30, 45]


async def test_a_period_is_one_row_however_often_it_is_stated(database: str) -> None:
    async with stage(database) as at:
        await at.commit(stated(1_000, 15, errors=1))
        await at.commit(stated(1_000, 15, errors=1), stated(1_500, 15, errors=2))
        await at.commit(stated(1_200, 15, errors=3))
        (one,) = await found(at)
        assert json.loads(one.body)["errors"] == 2


async def test_what_was_measured_at_the_end_of_a_period_stays(database: str) -> None:
    async with stage(database) as at:

        def measured(at_s: int, elapsed: int, errors: int) -> Record:
            body = current(0, elapsed, errors=errors)
            return record("PM_CURRENT_DATA", at_s, body, parents=CURRENT_ADDRESS[:1])

        await at.commit(measured(300, 5, 1))
        assert [one.complete for one in await found(at)] == [False]
        await at.commit(measured(900, 15, 2), measured(901, 5, 3))
        await at.commit(measured(902, 6, 4))
        (one,) = await found(at)
        assert (one.series, one.complete, json.loads(one.body)["errors"]) == (SERIES, True, 2)


async def test_the_oldest_periods_are_removed(database: str) -> None:
    async with stage(database, measurement_retention_records=3) as at:
        for minutes in range(15, 120, 15):
            await at.commit(stated(minutes * 60, minutes))
        assert await ends(at) == [75, 90, 105]


async def test_a_long_series_is_read_in_pages_in_the_order_of_time(database: str) -> None:
    async with stage(database) as at:
        await at.commit(*(stated(10_000 + number, 1_200 - number) for number in range(1_100)))
        assert await ends(at) == list(range(101, 1_201))


async def test_turned_on_later_off_and_on_again(database: str) -> None:
    async with stage(database, measurements=None) as at:
        await at.commit(stated(1_000, 15), create_update("n", 1_100))
        assert at.store.latest_only
        with pytest.raises(DerivationOffError, match="keeps no series") as caught:
            await found(at)
        assert caught.value.hint == "set measurements = true in the sink's options"
    async with stage(database) as at:
        assert not at.store.latest_only
        assert await ends(at) == [15]
    async with stage(database, measurements=False) as at:
        with pytest.raises(DerivationOffError):
            await found(at)
        assert at.store.latest_only


async def test_the_view_is_public(database: str) -> None:
    async with stage(database) as at:
        await at.commit(stated(1_000, 15))

        def read(connection: Any) -> Any:
            return connection.execute(text("SELECT * FROM instep_measurements")).one()

        row = await at.store.reader.database.run(read)
        assert (row.series, row.length_s, bool(row.complete), bool(row.suspect)) == (
            *(SERIES, 900, True, False),
        )
        assert str(row.period_end).replace(" ", "T")[:19] == "1970-01-01T00:15:00"
        assert str(row.period_begin).replace(" ", "T")[:19] == "1970-01-01T00:00:00"
