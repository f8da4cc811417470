"""What may happen to each table of a lake, and to `changes`: a run then makes the table right, or
refuses and says why; and `verify` is clean only where all tables are right (L2, L3, L5).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.exceptions import DeltaError
from deltalake.schema import PrimitiveType

from instep.errors import SinkError
from instep_spark.lake.lake import Lake
from instep_spark.lake.pipeline import PipelineStep
from instep_spark.lake.verify import Comparison
from tests.instep_spark.lake.change_log_kit import PartialProvider
from tests.instep_spark.lake.lake_kit import UNGUARDED, read, row
from tests.instep_spark.lake.log_kit import Provider, Row, Twins, land

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A JVM starts, and may share the machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

FOLLOWERS: Final = ("entity_history", "alarms", "topology", "stream_health", "typed_node")
HELPERS: Final = ("composed", "identities")
ALL: Final = ("entities", *FOLLOWERS, *HELPERS)
Failure = Callable[["SparkSession", Path, int], None]
"""What happens to the table in a folder; and a version in which it had fewer rows."""


def lake_of(folder: Path, spark: SparkSession, **options: Any) -> Lake:
    return Lake(folder.as_uri(), spark, **{"tables": FOLLOWERS, "settings": UNGUARDED, **options})


def contents(folder: Path) -> dict[str, list[str]]:
    """All rows of all tables."""
    return {name: sorted(map(str, read(folder, name))) for name in ALL}


def restored(_spark: SparkSession, table: Path, version: int) -> None:
    DeltaTable(table).restore(version)


def removed(_spark: SparkSession, table: Path, _version: int) -> None:
    shutil.rmtree(table)


def cloned(spark: SparkSession, table: Path, _version: int) -> None:
    """A copy in its place."""
    copy = table.with_name(f"{table.name}_copy")
    shutil.move(table, copy)
    spark.sql(f"CREATE TABLE delta.`{table.as_uri()}` SHALLOW CLONE delta.`{copy.as_uri()}`")


def vacuumed(_spark: SparkSession, table: Path, _version: int) -> None:
    found = DeltaTable(table)
    found.optimize.compact()
    found.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)


def trimmed(_spark: SparkSession, table: Path, _version: int) -> None:
    found = DeltaTable(table)
    first = min(found.to_pyarrow_table(columns=["ordinal"])["ordinal"].to_pylist())
    found.delete(f"ordinal = {first}")


def expired(_spark: SparkSession, table: Path, _version: int) -> None:
    """Commits of others, and of the log only these are left."""
    found = DeltaTable(table)
    found.alter.set_table_properties({"others.made": "this"}, raise_if_not_exists=False)
    found.create_checkpoint()
    for commit in (table / "_delta_log").glob("0*.json"):
        if int(commit.stem) < found.version():
            commit.unlink()


def unpointed(_spark: SparkSession, table: Path, _version: int) -> None:
    """The checkpoint of its log is lost, and so is the file that names it."""
    DeltaTable(table).create_checkpoint()
    for one in ("_last_checkpoint", "*.checkpoint.parquet"):
        for path in (table / "_delta_log").glob(one):
            path.unlink()


FAILURES: Final[tuple[Failure, ...]] = (
    *(restored, removed, cloned, vacuumed, trimmed, expired, unpointed),
)
REFUSED: Final = {cloned, expired}
"""None of the commits tells how far the table has come then: it has to be made again. So has a
table that others are made from, where rows of it were deleted."""


def logs_of() -> list[list[Row]]:
    """Whole statements, one uuid in several places, and changes only; none is swept, which would
    take most of the time.
    """
    logs = [
        Provider(2, "log", keys=2).run(8),
        Twins(4, "twins").rows,
        PartialProvider(5, "partial").run(9),
    ]
    return [list(takewhile(lambda one: one.kind != "SWEEP", log)) for log in logs]


class Made(NamedTuple):
    """A lake of random logs, whose tables have all rows that have landed."""

    folder: Path
    versions: dict[str, int]
    """Of the tables, when they had half of the rows."""
    right: dict[bool, dict[str, list[str]]]
    """The contents of the tables; True: after the rest of the logs, which has not landed."""
    rest: list[Row]


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder, twin = (tmp_path_factory.mktemp(name) for name in ("made", "twin"))
    logs = logs_of()
    land(folder, [one for log in logs for one in log[: len(log) // 2]])
    lake_of(folder, spark).run(once=True)
    versions = {name: DeltaTable(folder / name).version() for name in ALL}
    land(folder, [one for log in logs for one in log[len(log) // 2 : -2]])
    lake_of(folder, spark).run(once=True)
    land(twin, [one for log in logs for one in log])
    lake_of(twin, spark).run(once=True)
    rest = [one for log in logs for one in log[-2:]]
    return Made(folder, versions, {False: contents(folder), True: contents(twin)}, rest)


def run_until_right(folder: Path, spark: SparkSession) -> set[str]:
    """Run, and make again what is refused, as the hint says; the tables that were."""
    refused: set[str] = set()
    while True:
        again: list[str] = []
        try:
            lake_of(folder, spark).run(once=True)
            return refused
        except SinkError as error:
            again.append(refused_table(error, refused))
        while again:
            refused.add(again[-1])
            try:
                make_again(folder, spark, again[-1])
            except SinkError as error:  # it is made from another one that is refused
                again.append(refused_table(error, refused))
            else:
                again.pop()


def refused_table(error: SinkError, refused: set[str]) -> str:
    """The table that is refused, for the first time."""
    name = error.where.rpartition("/")[2]
    how = "move its folder away" if name in HELPERS else f"instep lake rebuild --tables {name}"
    assert how in error.hint, str(error)
    assert name not in refused
    return name


@pytest.mark.long  # a minute each: each table is opened, verified and made again by Spark
@pytest.mark.parametrize(
    ("shift", "lands"),
    [(shift, lands) for lands in (False, True) for shift in range(len(FAILURES))],
)
def test_l5_each_table_is_right_after_each_failure_or_refused(
    spark: SparkSession, tmp_path: Path, made: Made, shift: int, lands: bool
) -> None:
    """Each table has another failure; in seven turns, each has had each."""
    shutil.copytree(made.folder, tmp_path, dirs_exist_ok=True)
    right = made.right[lands]
    happened = {
        name: FAILURES[(at + shift) % len(FAILURES)] for at, name in enumerate(reversed(ALL))
    }
    for name, failure in happened.items():
        failure(spark, tmp_path / name, made.versions[name])
    if lands:
        land(tmp_path, made.rest)
    if happened["entities"] is removed:
        with pytest.raises(SinkError, match="there is no table entities"):
            lake_of(tmp_path, spark).verify()
    else:
        check_told(tmp_path, lake_of(tmp_path, spark).verify(), right)
    trim = {name for name, failure in happened.items() if failure is trimmed}
    refused = {name for name, failure in happened.items() if failure in REFUSED}
    assert run_until_right(tmp_path, spark) == refused | (trim & {*HELPERS})
    altered = trim - {*HELPERS}
    found = lake_of(tmp_path, spark).verify()
    check_told(tmp_path, found, right)
    assert set(found.altered) == altered
    for name in altered:
        make_again(tmp_path, spark, name)
    lake_of(tmp_path, spark).run(once=True)
    assert contents(tmp_path) == right
    found = lake_of(tmp_path, spark).verify()
    assert found.clean, str(found)


# Each table that was altered is made again by Spark to compare it.
def test_l5_what_another_writer_has_altered_is_compared_until_it_is_made_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    names = ("entities", "topology")
    land(tmp_path, [row(1), row(2), row(3)])
    lake = lake_of(tmp_path, spark, tables=["topology"])
    lake.run(once=True)
    entities, topology = (DeltaTable(tmp_path / name) for name in names)
    write_deltalake(entities, entities.to_pyarrow_table().slice(0, 2), mode="append")
    # A column of a user is not what `changes` tells, and no fault.
    topology.alter.add_columns(Field("mine", PrimitiveType("string")))
    spark.sql(f"UPDATE delta.`{(tmp_path / 'topology').as_uri()}` SET mine = 'this'")
    land(tmp_path, [row(4)])
    lake.run(once=True)
    for name in names:  # the log may forget what the others have written
        stamps = [str(one.get("userMetadata")) for one in DeltaTable(tmp_path / name).history()]
        assert '"altered":true' in stamps[0], name
    found = lake.verify()
    assert (found.clean, found.altered) == (False, {"entities": 2, "topology": 0})
    assert "entities: another writer has altered rows, 2 differ" in str(found)
    lake_of(tmp_path, spark, tables=["entities"]).rebuild()
    found = lake.verify()
    assert (found.clean, found.altered) == (True, {"topology": 0})


def test_l5_a_table_without_a_column_or_a_file_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    land(tmp_path, [row(1)])
    lake = lake_of(tmp_path, spark, tables=["topology"])
    lake.run(once=True)
    topology = tmp_path / "topology"
    (gone,) = topology.glob("*.parquet")
    gone.unlink()
    with pytest.raises(SinkError, match="topology: a file of the table is gone") as refused:
        lake.verify()
    assert refused.value.hint.endswith("instep lake rebuild --tables topology")
    lake.rebuild()
    assert lake.verify().clean
    named = f"delta.`{topology.as_uri()}`"
    mapped = "'delta.columnMapping.mode' = 'name'"
    spark.sql(f"ALTER TABLE {named} SET TBLPROPERTIES ({mapped})")
    spark.sql(f"ALTER TABLE {named} RENAME COLUMN node_uuid TO node")
    for do in (lake.verify, lambda: lake.run(once=True)):
        with pytest.raises(SinkError, match="topology: the table has no column node_uuid"):
            do()
    shutil.rmtree(topology)
    lake.run(once=True)
    assert lake.verify().clean
    shutil.rmtree(topology / "_delta_log")
    with pytest.raises(SinkError, match="move the folder away, and run"):
        lake.run(once=True)
    land(tmp_path, [row(1)])
    with pytest.raises(SinkError, match="changes has 2 rows of c / s up to the ordinal 1"):
        lake_of(tmp_path, spark, tables=[]).verify()


def check_told(folder: Path, found: Comparison, right: dict[str, list[str]]) -> None:
    """`verify` tells of each table that is not right."""
    for name in ALL:
        try:
            if sorted(map(str, read(folder, name))) == right[name]:
                continue
        except (DeltaError, OSError):
            pass  # it is not there, or a clone, which delta-rs does not read
        # Which streams need a helper, only `entities` tells.
        told = found.rows_behind.get(name) != 0 or found.altered.get(name, 0) != 0
        if name == "entities":
            told |= bool(found.missing + found.stale + found.bogus)
        assert told, (name, str(found))
        assert not found.clean


def make_again(folder: Path, spark: SparkSession, name: str) -> None:
    if name in HELPERS:
        shutil.rmtree(folder / name)
    else:
        lake_of(folder, spark, tables=[name]).rebuild()


def test_l3_what_a_table_is_made_from_is_made_right_first(
    spark: SparkSession, tmp_path: Path
) -> None:
    """`composed` was restored, or has lost rows, when a table is rebuilt that is made from it."""
    log = [one for one in PartialProvider(5, "partial").run(9) if one.kind != "SWEEP"]
    lake = lake_of(tmp_path, spark, tables=["entity_history"])
    composed = tmp_path / "composed"
    land(tmp_path, log[: len(log) // 2])
    lake.run(once=True)
    version = DeltaTable(composed).version()
    land(tmp_path, log[len(log) // 2 :])
    lake.run(once=True)
    right = sorted(map(str, read(tmp_path, "entity_history")))
    DeltaTable(composed).restore(version)
    lake.rebuild()
    assert sorted(map(str, read(tmp_path, "entity_history"))) == right
    DeltaTable(composed).delete("ordinal % 2 = 0")
    for do in (lake.rebuild, lambda: lake.run(once=True)):
        with pytest.raises(SinkError, match="another writer has altered rows") as caught:
            do()
        assert refused_table(caught.value, set()) == "composed"
    shutil.rmtree(composed)
    lake.rebuild()
    assert sorted(map(str, read(tmp_path, "entity_history"))) == right
    assert lake.verify().clean


def test_l2_a_restore_while_rows_are_merged_is_seen_and_made_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    """`entities` is restored behind its own commit, `topology` before its own: what is merged then
    was decided on what is there no more.
    """
    tables = ["topology"]
    land(tmp_path, [row(1)])
    lake_of(tmp_path, spark, tables=tables).run(once=True)
    versions = {name: DeltaTable(tmp_path / name).version() for name in ("entities", "topology")}
    land(tmp_path, [row(2)])
    lake_of(tmp_path, spark, tables=tables).run(once=True)
    land(tmp_path, [row(3)])

    def then(step: PipelineStep) -> None:
        if step.table == "entities" and versions:
            for name, version in versions.items():
                DeltaTable(tmp_path / name).restore(version)
            versions.clear()

    lake_of(tmp_path, spark, tables=tables, report=then).run(once=True)
    assert not versions
    for name in ("entities", "topology"):
        assert sorted(one["key"] for one in read(tmp_path, name)) == ["n1", "n2", "n3"]
    assert lake_of(tmp_path, spark, tables=tables).verify().clean
