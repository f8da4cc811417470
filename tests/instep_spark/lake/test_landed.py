"""What a look at `changes` finds, by the driver; no Spark is asked (`test_ordinals` asks it)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from instep.errors import SinkError
from instep_spark.lake.batches.progress import StreamProgress, TableProgress
from instep_spark.lake.landed import LandedRows
from instep_spark.lake.pipeline import Pipeline
from instep_spark.lake.tables.delta_rs_table import DeltaRsTable
from instep_spark.place import LakePlace
from tests.instep_spark.lake.lake_kit import row
from tests.instep_spark.lake.log_kit import START_US, land

NO_SPARK: Any = None
HOUR_US = 3_600_000_000


class Lake:
    """A pipeline of `entities` and `alarms`, and looks at its `changes`."""

    def __init__(self, folder: Path) -> None:
        place = LakePlace(folder.as_uri())
        self.pipeline = Pipeline(place, tables=["alarms"])
        changes = DeltaRsTable(place.location("changes"), any_size=True)
        self.pipeline.changes_by_driver = changes
        self.now_s = 0.0
        self.landed = LandedRows(NO_SPARK, self.pipeline, lambda: self.now_s)

    def have(self, alarms: int | None = None, **streams: int) -> None:
        """The tables have come so far in these streams."""
        progress = TableProgress({("c", name): StreamProgress(n) for name, n in streams.items()})
        for target in self.pipeline.targets:
            target.progress = progress
        if alarms is not None:
            behind = {("c", "s"): StreamProgress(alarms)}
            self.pipeline.followers[0].progress = progress.moved(behind)


def test_l5_only_what_some_table_lacks_is_found_and_each_thing_once(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    land(tmp_path, [row(1), row(2), row(1, stream="other")])
    assert lake.landed.ends() == {("c", "s"): 2, ("c", "other"): 1}
    lake.have(s=2, other=1)
    assert lake.landed.ends() == {}
    land(tmp_path, [row(3)])
    assert lake.landed.ends() == {("c", "s"): 3}
    lake.have(s=3, other=1)
    # Nothing lands; but one table lost what another one has, and the rest is not forgotten.
    lake.have(alarms=1, s=3, other=1)
    assert lake.landed.ends() == {("c", "s"): 3}
    # All tables lost it: only `changes` tells.
    lake.have(s=1, other=1)
    assert lake.landed.ends() == {}
    lake.landed.forget()
    assert lake.landed.ends() == {("c", "s"): 3}


def test_l5_a_row_with_an_old_time_is_found_within_a_minute(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    land(tmp_path, [row(1), row(1, stream="old")])
    assert lake.landed.ends() == {("c", "s"): 1, ("c", "old"): 1}
    lake.have(s=1, old=1)
    land(tmp_path, [row(2), row(2, stream="old", committed_at=START_US - 2 * HOUR_US)])
    assert lake.landed.ends() == {("c", "s"): 2}
    lake.have(s=2, old=1)
    lake.now_s = 60.0
    land(tmp_path, [row(3)])
    assert lake.landed.ends() == {("c", "s"): 3, ("c", "old"): 2}
    lake.have(s=3, old=2)
    # Where nothing else has landed, it is found at once.
    land(tmp_path, [row(3, stream="old", committed_at=START_US - 2 * HOUR_US)])
    assert lake.landed.ends() == {("c", "old"): 3}


def test_l2_a_restore_of_changes_is_seen_while_a_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path)
    land(tmp_path, [row(1)])
    land(tmp_path, [row(2)])
    lake.landed.ends()
    lake.have(s=2)

    def refuse(_pipeline: Pipeline, _spark: object) -> None:
        raise SinkError("changes was restored")

    monkeypatch.setattr(Pipeline, "refuse_other_changes", refuse)
    land(tmp_path, [row(3)])
    assert lake.landed.ends() == {("c", "s"): 3}
    DeltaTable(tmp_path / "changes").restore(0)
    land(tmp_path, [row(2, key="another")])
    with pytest.raises(SinkError, match="changes was restored"):
        lake.landed.ends()
