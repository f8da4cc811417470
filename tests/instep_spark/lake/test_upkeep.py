"""When a run looks after its tables, and what that leaves."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from instep_spark.lake import upkeep
from instep_spark.lake.lake import Lake, RunProgress
from instep_spark.lake.pipeline import LakeSettings
from instep_spark.lake.upkeep import VACUUMED_PROPERTY, TableFiles, Upkeep, UpkeepTask
from tests.instep_spark.lake.lake_kit import UNGUARDED, check_entities
from tests.instep_spark.lake.log_kit import Provider, land
from tests.instep_spark.lake.model_kit import Model

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANY = TableFiles(files=500, bytes=500 << 10, file_bytes=1 << 20)


def _looked(kept: Upkeep, now_s: float) -> bool:
    for _ in range(50):
        kept.batch_done()
    return kept.looks(now_s)


def test_the_share_is_never_exceeded_but_by_one_surprise() -> None:
    chance = random.Random(3)
    kept, now_s, surprise_s, done = Upkeep(0.1, 0.0), 0.0, 0.0, 0
    for _ in range(2_000):
        now_s += chance.uniform(0.5, 4)
        if _looked(kept, now_s):
            kept.counted({"alarms": MANY, "entities": MANY})
        task = kept.next(now_s)
        if task is not None:
            seconds = chance.uniform(0.1, 6)
            kept.done(task, seconds, files=400)
            now_s += seconds
            surprise_s, done = max(surprise_s, seconds), done + 1
        assert kept.spent_s <= 0.1 * now_s + surprise_s
    assert done > 20
    assert kept.files == 400 * done


def test_only_many_small_files_are_joined() -> None:
    kept = Upkeep(0.1, 0.0)
    assert _looked(kept, 1_000.0)
    kept.counted(
        {
            "alarms": TableFiles(files=10, bytes=1_000, file_bytes=1 << 20),
            "entities": TableFiles(files=100, bytes=100 << 26, file_bytes=64 << 20),
            "entity_history": TableFiles(files=500, bytes=300 << 20, file_bytes=1 << 20),
            "topology": MANY,
        }
    )
    assert kept.next(1_000.0) == UpkeepTask("optimize", "topology")
    kept.done(UpkeepTask("optimize", "topology"), 1.0, files=499)
    assert kept.next(2_000.0) is None


def test_what_would_take_too_long_waits_and_others_do_not() -> None:
    kept = Upkeep(0.1, 0.0)
    kept.counted(
        {"entities": TableFiles(files=1_000, bytes=4 << 30, file_bytes=64 << 20), "alarms": MANY}
    )
    assert kept.next(30.0) == UpkeepTask("optimize", "alarms")
    kept.done(UpkeepTask("optimize", "alarms"), 3.0)
    assert kept.next(60.0) is None
    assert kept.next(10_000.0) == UpkeepTask("optimize", "entities")


def test_tables_are_vacuumed_once_a_day_one_after_another() -> None:
    kept = Upkeep(0.1, 0.0)
    kept.vacuumed(1_000_000.0, 1_080_000.0, ["changes", "entities"])
    assert not kept.waits_for("vacuum")
    kept.vacuumed(1_000_000.0, 1_090_000.0, ["changes", "entities"])
    kept.vacuumed(1_000_000.0, 1_090_001.0, ["changes", "entities"])
    assert kept.next(50.0) == UpkeepTask("vacuum", "changes")
    kept.done(UpkeepTask("vacuum", "changes"), 4.9)
    assert kept.waits_for("vacuum")
    assert kept.next(51.0) is None
    assert kept.next(100.0) == UpkeepTask("vacuum", "entities")
    kept.done(UpkeepTask("vacuum", "entities"), 1.0)
    assert not kept.waits_for("vacuum")


def test_an_audit_waits_for_its_share() -> None:
    kept = Upkeep(0.1, 0.0)
    kept.audit_due()
    kept.audit_due()
    kept.vacuumed(0.0, 86_400.0, ["entities"])
    assert kept.next(1_000.0) == UpkeepTask("audit", "reconciliation")
    kept.postpone(UpkeepTask("audit", "reconciliation"), 1.0)
    assert kept.next(1_000.0) == UpkeepTask("vacuum", "entities")
    kept.done(UpkeepTask("vacuum", "entities"), 0.0)
    assert kept.next(10.0) is None  # within the share
    assert kept.next(1_000.0) == UpkeepTask("audit", "reconciliation")
    kept.done(UpkeepTask("audit", "reconciliation"), 30.0)
    assert kept.next(1_000.0) is None
    kept.audit_due()
    assert kept.next(500.0) is None  # so long the last one took
    assert kept.next(1_000.0) == UpkeepTask("audit", "reconciliation")


def test_without_a_share_nothing_is_looked_after() -> None:
    kept = Upkeep(0.0, 0.0)
    assert not _looked(kept, 1e6)
    kept.vacuumed(0.0, 1e9, ["changes"])
    assert kept.next(1e6) is None


# A JVM starts, and may share the machine.
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.long
def test_a_run_looks_after_its_tables_and_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_LOOKED_AT", 1)
    monkeypatch.setattr(upkeep, "_FILES", 2)
    monkeypatch.setattr(upkeep, "_VACUUMED_S", 0.0)
    log = Provider(7, "one").run(24)
    # Landed in several commits, so that the tables have several files.
    told: list[RunProgress] = []
    parts = [log[begin : begin + 12] for begin in range(0, len(log), 12)]

    def run(share: float) -> Lake:
        settings = LakeSettings(sweep_guard_share=1.0, upkeep_share=share)
        lake = Lake(tmp_path.as_uri(), spark, settings=settings, report_run=told.append)
        lake.run(once=True)
        return lake

    for rows in parts[:-1]:
        land(tmp_path, rows)
        run(0.0)
        assert (told[-1].upkeep_s, told[-1].files_joined) == (0.0, 0)
    land(tmp_path, parts[-1])
    lake = run(1e9)  # of a time that has hardly begun
    assert told[-1].upkeep_s > 0
    assert told[-1].files_joined > 2
    for _ in range(12):
        lake._look_after()
    table = DeltaTable(tmp_path / "entities")
    assert VACUUMED_PROPERTY in table.metadata().configuration
    histories = [DeltaTable(tmp_path / name).history() for name in ("entity_history", "alarms")]
    assert any(one["operation"] == "OPTIMIZE" for history in histories for one in history)
    model = Model()
    model.read(log)
    check_entities(tmp_path, model)
    more = Provider(8, "two").run(6)
    land(tmp_path, more)
    Lake(tmp_path.as_uri(), spark, settings=UNGUARDED).run(once=True)
    model.read(more)
    check_entities(tmp_path, model)
    assert lake.verify().clean
