"""Delivered messages reach the lake once, in the order of delivery."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from instep.sequencing import Cancel, Fill
from instep_spark.lake.lake import Lake
from tests.instep.runtime.messages.intake_kit import SCOPE, spoken
from tests.instep_spark.lake.lake_kit import read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A JVM starts, and may share the machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


async def deliver(store: str, *numbers: int) -> None:
    async with spoken(store) as at:
        await at.say(*numbers)


async def end_in_other_ways(store: str) -> None:
    async with spoken(store) as at:
        await at.intake.apply(SCOPE, [Cancel([(5, 6)]), Fill([(7, 7)])])


def test_what_became_of_each_number_is_copied(spark: SparkSession, tmp_path: Path) -> None:
    store, lake = f"sqlite:///{tmp_path / 'store.db'}", Lake((tmp_path / "lake").as_uri(), spark)
    asyncio.run(deliver(store, 1, 2))
    assert lake.take_numbers(store) == 1
    asyncio.run(deliver(store, 3, 4))
    asyncio.run(end_in_other_ways(store))
    for _ in range(2):
        assert lake.take_numbers(store) == 3
        rows = sorted(read(tmp_path / "lake", "sequence_numbers"), key=lambda one: one["low"])
        found = [(one["low"], one["high"], one["outcome"], one["decided_by"]) for one in rows]
        assert found == [
            (1, 4, "delivered", ""),
            (5, 6, "cancelled", "sender"),
            (7, 7, "filled", "sender"),
        ]
        assert rows[1]["decided_at"] > 0
    table = f"delta.`{(tmp_path / 'lake').as_uri()}/sequence_numbers`"
    for consumer in ("consumer", "'another'"):
        spark.sql(
            f"INSERT INTO {table} BY NAME SELECT {consumer} AS consumer, stream, epoch, "
            f"99L AS low, 99L AS high, outcome, reason, decided_by, told FROM {table} WHERE low = 7"
        )
    assert lake.take_numbers(store) == 3
    left = read(tmp_path / "lake", "sequence_numbers")
    assert [one["consumer"] for one in left if one["low"] == 99] == ["another"], "of no sequence"


def test_messages_are_copied_once(spark: SparkSession, tmp_path: Path) -> None:
    store, lake = f"sqlite:///{tmp_path / 'store.db'}", Lake((tmp_path / "lake").as_uri(), spark)
    asyncio.run(deliver(store, 1, 3, 2))
    assert lake.take_messages(store) == 3
    assert lake.take_messages(store) == 0
    asyncio.run(deliver(store, 4))
    assert lake.take_messages(store) == 1
    found = sorted(read(tmp_path / "lake", "messages"), key=lambda one: one["cursor"])
    assert [one["number"] for one in found] == [1, 2, 3, 4]
    assert {one["stream"] for one in found} == {SCOPE}
    assert found[0]["body"] == '{"number": 1}'
    assert found[0]["delivered_at"] >= found[0]["received_at"] > 0
