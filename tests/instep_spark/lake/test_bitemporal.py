"""What was believed when about when, and how sure an interval is: against a plain loop."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from instep_spark import create_views
from instep_spark.lake.lake import Lake
from instep_spark.landing_schema import FACTS, arrow_schema
from tests.instep_spark.lake.lake_kit import UNGUARDED
from tests.instep_spark.lake.log_kit import START_US, Provider, Row, land
from tests.instep_spark.lake.model_kit import Model

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A JVM starts, and may share the machine.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

COMPACTION_S: Final = 300
RETENTION_S: Final = 100_000


def at_s(seconds: float) -> int:
    return START_US + int(seconds * 1_000_000)


def told(stream: str, ordinal: int, key: str, appended_s: int, read_s: int, **facts: Any) -> Row:
    kind = facts.pop("kind", "CREATE_UPDATE")
    offset = facts.pop("offset", ordinal)
    return Row(
        *("c", stream, ordinal, kind, key, f"t{offset}", "p", offset),
        appended_at=at_s(appended_s),
        event_at=at_s(appended_s),
        committed_at=at_s(read_s),
        ends=kind == "DELETE",
        **facts,
    )


def control(stream: str, ordinal: int, kind: str, read_s: int, **facts: Any) -> Row:
    return Row("c", stream, ordinal, kind, committed_at=at_s(read_s), **facts)


def stream_of(name: str, *, readable: tuple[str, ...] | None, **facts: Any) -> list[Row]:
    """`late` is read 400 s after it was appended; `gone` is not stated again."""
    rows = [
        control(name, 1, "ATTEMPT", 0),
        told(name, 2, "late", 10, 11, value=1),
        told(name, 3, "gone", 12, 13),
        told(name, 4, "late", 100, 500, value=2),
        told(name, 5, "late", 620, 621, kind="DELETE"),
        told(name, 6, "gone", 12, 700, offset=3),
        control(name, 7, "ATTEMPT", 1_000, attempt=2),
        told(name, 8, "new", 1_001, 1_002, attempt=2),
        control(name, 9, "SWEEP", 1_003, attempt=2, readable=readable),
    ]
    return [replace(row, **facts) if row.key else row for row in rows]


def declared(*streams: str) -> pa.Table:
    info = {"compaction_delay_s": COMPACTION_S, "tombstone_retention_s": RETENTION_S}
    rows = [("c", name, "STREAM", "", 0, json.dumps(info), at_s(0)) for name in streams]
    schema = arrow_schema(FACTS)
    columns = zip(*rows, strict=True)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema)


def existed(rows: list[Row], at: int, as_of: int) -> set[tuple[str, str, str | None]]:
    """What existed then, by what had landed then."""
    model = Model()
    model.read([row for row in rows if row.committed_at <= as_of])
    return {
        (stream, key, one["body"])
        for (_, stream, key), intervals in model.history.items()
        for one in intervals
        if one["from"] <= at and (one["to"] is None or one["to"] > at)
    }


def test_the_history_states_its_own_uncertainty_and_what_was_believed(
    spark: SparkSession, tmp_path: Path
) -> None:
    random = Provider(103, "random", keys=3).run(16)
    rows = [*stream_of("s", readable=None), *stream_of("blind", readable=("LINK",))]
    alarms = stream_of("alarms", readable=None, detector=True, state="ACTIVE")
    rows += alarms
    land(tmp_path, [*rows, *random])
    write_deltalake(tmp_path / "stream_facts", declared("s", "blind", "alarms"))
    tables = ["entity_history", "stream_health", "alarms"]
    Lake(tmp_path.as_uri(), spark, tables=tables, settings=UNGUARDED).run(once=True)
    session = spark.newSession()
    create_views(session, tmp_path.as_uri())

    proofs = session.sql(
        "SELECT key, unix_micros(valid_from) AS since, unix_micros(known_from) AS known_from, "
        "unix_micros(known_until) AS known_until, basis, zone, uncertain_s "
        "FROM entity_intervals WHERE stream = 's'"
    ).collect()
    full, reduced = "full fidelity", "reduced fidelity"
    assert {(one.key, one.since): tuple(one)[2:] for one in proofs} == {
        # It may have changed within the 400 s, but not before it was appended, 90 s before its end.
        ("late", at_s(10)): (at_s(11), at_s(500), "STATED", reduced, 90.0),
        ("late", at_s(100)): (at_s(500), at_s(621), "STATED", full, 0.0),
        # Seen last at 700, gone at 1,000 at the latest.
        ("gone", at_s(12)): (at_s(13), at_s(1_003), "SWEPT", full, 300.0),
        ("new", at_s(1_001)): (at_s(1_002), None, "STATED", full, 0.0),
    }
    episodes = session.sql(
        "SELECT key, unix_micros(known_from) AS since, unix_micros(known_until) AS known_until,"
        " basis, zone, uncertain_s FROM alarm_intervals WHERE stream = 'alarms'"
    ).collect()
    assert {one.key: tuple(one)[1:] for one in episodes} == {
        "late": (at_s(11), at_s(621), "STATED", full, 0.0),
        "gone": (at_s(13), at_s(1_003), "SWEPT", full, 300.0),
        "new": (at_s(1_002), None, "STATED", full, 0.0),
    }
    blind = session.sql(
        "SELECT key, basis, valid_from, uncertain_s, now() AS now FROM entity_intervals "
        "WHERE stream = 'blind' AND open"
    ).collect()
    by_key = {one.key: one for one in blind}
    assert {key: one.basis for key, one in by_key.items()} == {"gone": "UNPROVEN", "new": "STATED"}
    since_s = (by_key["gone"].now - datetime(1970, 1, 1)).total_seconds()  # noqa: DTZ001 - as Spark gives it
    assert by_key["gone"].uncertain_s == pytest.approx(since_s - at_s(700) / 1e6, abs=1)

    # The model knows no classes that an attempt could not read.
    everything = [row for row in (*rows, *random) if row.stream != "blind"]
    moments = sorted({row.committed_at for row in everything})
    chosen = [moments[len(moments) // 2], moments[-1] + 1]
    asked = [(at, as_of) for at in chosen for as_of in chosen]
    answers = session.sql(
        " UNION ALL ".join(
            f"SELECT {n} AS question, stream, key, body FROM entities_at("
            f"timestamp_micros({at}), timestamp_micros({as_of})) WHERE stream <> 'blind'"
            for n, (at, as_of) in enumerate(asked)
        )
    ).collect()
    found: dict[int, set[tuple[str, str, str | None]]] = {n: set() for n in range(len(asked))}
    for one in answers:
        found[one.question].add((one.stream, one.key, one.body))
    for n, (at, as_of) in enumerate(asked):
        assert found[n] == existed(everything, at, as_of), (at, as_of)
    assert any(
        existed(everything, at, as_of) != existed(everything, at, chosen[-1]) for at, as_of in asked
    )
    now = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=chosen[-1])
    today = session.sql(
        f"SELECT stream, key, body FROM entities_at(TIMESTAMP '{now}') WHERE stream <> 'blind'"
    ).collect()
    assert {tuple(one) for one in today} == existed(everything, chosen[-1], chosen[-1])
