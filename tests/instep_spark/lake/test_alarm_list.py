"""Each alarm of the list for TAPI 2.6 in a lake: the same episodes as in a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from instep_spark import DeltaSink, Lake
from tests.instep_spark.lake.lake_kit import UNGUARDED, read
from tests.instep_tapi.alarm_list_kit import alarm_list, statements
from tests.instep_tapi.small_provider_kit import SmallProvider, running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# A JVM starts, and may share the machine.
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.asyncio
async def test_each_is_an_episode(spark: SparkSession, shared_data: Path, tmp_path: Path) -> None:
    entries = alarm_list(shared_data)
    steps = statements(entries)
    # Every other one still stands.
    log = [*steps["raised"], *steps["changed"], *steps["cleared"][::2]]
    provider = SmallProvider("CONDITION_DETECTOR", log=log, storage="COMPACTED")
    async with running(provider, DeltaSink(tmp_path.as_uri())):
        pass
    Lake(tmp_path.as_uri(), spark, tables=["alarms"], settings=UNGUARDED).run(once=True)
    found = {
        one["key"]: (
            *(one["condition"], one["condition_normalized"], one["measured_entity_class"]),
            *(one["severity"], one["worst_severity"], one["severity_changes"]),
            *(one["state"], one["ended_by"]),
        )
        for one in read(tmp_path, "alarms")
    }
    assert found == {
        one.key: (
            *(one.native, one.normalized, one.measured_class, one.worse, one.worst, 1),
            *(("INTERMITTENT", None) if at % 2 else ("CLEAR", "CLEAR")),
        )
        for at, one in enumerate(entries)
    }
