"""Holds a lake against itself and against what its provider stated, as delta-rs reads it: no Spark
has a hand in it.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import msgspec
import polars as pl
from deltalake import DeltaTable
from polars import selectors

from instep import Position
from instep_spark.lake.batches.progress import CommitMetadata, TableProgress
from tests.crash.lake_witness_kit import Place, Witness
from tests.crash.site_kit import Report, Site

__all__ = [
    "FOLLOWED",
    "RECORDS",
    "check_round",
    "compare_entities",
    "compare_history",
    "compare_progress",
    "compare_rows",
]

FOLLOWED: Final = ("entities", "entity_history", "alarms")
"""What the pipeline makes of `changes`."""

RECORDS: Final = ("CREATE_UPDATE", "DELETE", "TOMBSTONE")
MOMENTS: Final = 300


def table(lake: str, name: str, *columns: str) -> list[dict[str, Any]]:
    """A table's rows, moments in microseconds; none where it is not there."""
    place = f"{lake}/{name}"
    if not DeltaTable.is_deltatable(place):
        return []
    # Polars reads deletion vectors by itself; what merges is Spark or delta-rs.
    found = pl.scan_delta(place).select(columns or pl.all())
    moments = selectors.datetime().dt.epoch("us")
    rows: list[dict[str, Any]] = found.with_columns(moments).collect().to_dicts()
    return rows


def check_round(here: Site, report: Report, attempts: int) -> None:
    """Rows are dense, none is there twice, and the position covers no record that is not a row;
    no stream opened more attempts than `attempts`.
    """
    names = ("stream", "attempt", "partition", "record_offset", "key", "kind", "token")
    columns = (*names, "ordinal", "position")
    rows = sorted(table(here.store, "changes", *columns), key=lambda row: row["ordinal"])
    truth = here.truth()
    at = f"round {report.rounds}"
    by_stream: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_stream[row["stream"]].append(row)
    positions: dict[str, Position] = {}
    for stream, own in by_stream.items():
        if [one["ordinal"] for one in own] != list(range(1, len(own) + 1)):
            report.ahead.append(f"{at}: {stream}: the ordinals are not dense")
        if own[-1]["position"] is None:
            report.ahead.append(f"{at}: {stream}: the last row has no position")
            continue
        positions[stream] = msgspec.json.decode(own[-1]["position"], type=Position)
    copies = Counter(tuple(row[name] for name in names) for row in rows if row["kind"] in RECORDS)
    report.ahead += [f"{at}: {row[4]} {times} times" for row, times in copies.items() if times > 1]
    newest = {(row["stream"], row["key"]): row["token"] for row in rows if row["kind"] in RECORDS}
    for place, stated in truth.items():
        position = positions.get(place[0])
        if position is None or stated.appended_at_us >= position.appended_at_us:
            continue
        if newest.get(place) != stated.token:
            report.ahead.append(f"{at}: {place}: {newest.get(place)} for {stated}")
    for stream, position in positions.items():
        if position.attempt > attempts:
            report.needless_attempts.append(f"{at}: {stream}: attempt {position.attempt}")
    report.committed_records = sum(position.records for position in positions.values())


def compare_rows(here: Site, seen: Witness) -> list[str]:
    """Every record that was stated is a row of `changes` once, and nothing else is."""
    names = ("stream", "key", "kind", "token")
    rows = table(here.store, "changes", *names)
    held = Counter(tuple(row[name] for name in names) for row in rows if row["kind"] in RECORDS)
    stated = {
        (one.stream, one.key, one.kind, one.token)
        for logged in seen.logged.values()
        for one in logged
    }
    found = [f"row {row} {times} times" for row, times in held.items() if times > 1]
    found += [f"no row for {row}" for row in stated - held.keys()]
    found += [f"a row for what nobody stated: {row}" for row in held.keys() - stated]
    return found


def compare_progress(here: Site) -> list[str]:
    """Each table of the pipeline has come to the last row of `changes`, by its own newest commit
    that says how far it is.
    """
    head: Counter[str] = Counter()
    for row in table(here.store, "changes", "stream", "ordinal"):
        head[row["stream"]] = max(head[row["stream"]], row["ordinal"])
    found = []
    for name in FOLLOWED:
        commits = DeltaTable(f"{here.store}/{name}").history()
        carried = (CommitMetadata.decode(commit.get("userMetadata") or "") for commit in commits)
        newest = next(
            (metadata for metadata in carried if metadata is not None),
            CommitMetadata(TableProgress()),
        )
        by_stream = {
            stream: stream_progress.ordinal
            for (_, stream), stream_progress in newest.progress.by_stream.items()
        }
        if by_stream != head:
            found.append(f"{name} stands at {by_stream}, changes at {dict(head)}")
    return found


def compare_entities(here: Site, seen: Witness) -> list[str]:
    """`entities` is what the provider has stated and not ended, with all that it states now, and
    the open alarms are its alarms.
    """
    wanted = {place: one.body for place, one in seen.state().items()}
    held = {(row["stream"], row["key"]): row for row in table(here.store, "entities")}
    found = [f"unsaid {place}" for place in here.truth().keys() - wanted.keys()]
    found += [f"phantom {place}" for place in held.keys() - wanted.keys()]
    found += [f"missing {place}" for place in wanted.keys() - held.keys()]
    found += [
        f"stale {place}"
        for place in wanted.keys() & held.keys()
        if json.loads(held[place]["body"]) != wanted[place]
    ]
    detectors = {place for place, row in held.items() if row["class"] == "CONDITION_DETECTOR"}
    episodes = table(here.store, "alarms", "stream", "key", "open")
    alarms = Counter((row["stream"], row["key"]) for row in episodes if row["open"])
    found += [f"alarm {place}: open episodes" for place in alarms.keys() ^ detectors]
    return found + [f"alarm {place}: open {n} times" for place, n in alarms.items() if n > 1]


def compare_history(here: Site, seen: Witness, rng: random.Random) -> list[str]:
    """`entity_history`, replayed to random moments and to the very moments of statements, is what
    the provider stated then.
    """
    columns = ("stream", "key", "valid_from", "valid_to", "ended_by", "body", "ordinal")
    rows = table(here.store, "entity_history", *columns)
    times = sorted(one.appended_at_us for logged in seen.logged.values() for one in logged)
    moments = [rng.randint(times[0], times[-1] + 1_000_000) for _ in range(MOMENTS)]
    exact = rng.sample(times, min(len(times), MOMENTS))
    moments = sorted({*moments, *exact, *(at - 1 for at in exact)})
    found: list[str] = list(_overlaps(rows))
    readings = _readings(here)
    for at, stated in zip(moments, seen.states(moments), strict=True):
        replayed = {
            (row["stream"], row["key"]): row
            for row in rows
            if row["valid_from"] <= at and (row["valid_to"] is None or at < row["valid_to"])
        }
        for place in stated.keys() | replayed.keys():
            row, wanted = replayed.get(place), stated.get(place)
            if row is not None and wanted is None and _unknowable(place, row, at, seen, readings):
                continue
            body = None if wanted is None else wanted.body
            if row is None or json.loads(row["body"]) != body:
                found.append(f"at {at}: {place}: {row} instead of {str(body)[:200]}")
        if len(found) > 20:
            break
    return found


def _readings(here: Site) -> dict[str, list[int]]:
    """Of each stream, when the readings of its log began that came to their sweep."""
    rows = table(here.store, "changes", "stream", "kind", "attempt", "committed_at")
    swept = {(row["stream"], row["attempt"]) for row in rows if row["kind"] == "SWEEP"}
    found: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        if row["kind"] == "ATTEMPT" and (row["stream"], row["attempt"]) in swept:
            found[row["stream"]].append(row["committed_at"])
    return found


def _unknowable(
    place: Place, row: dict[str, Any], at: int, seen: Witness, readings: dict[str, list[int]]
) -> bool:
    """It vanished together with the log: nobody could know before the next reading of the log that
    came to its end.
    """
    return row["ended_by"] == "SWEEP" and any(
        place == gone and begin <= at < min((r for r in readings[place[0]] if r > begin), default=0)
        for begin, gone in seen.lost
    )


def _overlaps(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Intervals of an entity that overlap, or are open beside another."""
    by_place: dict[Place, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_place[row["stream"], row["key"]].append(row)
    for place, own in by_place.items():
        own.sort(key=lambda row: row["ordinal"])
        for one, other in pairwise(own):
            if one["valid_to"] is None or one["valid_to"] > other["valid_from"]:
                yield f"{place}: {one} overlaps {other}"
