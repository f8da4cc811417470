"""Changes become whole statements as in a SQL store, however often they are kept between."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter
from typing import Any

import pytest

from instep_spark.lake.tables.composer import UNRESOLVED, Composer, names_in
from instep_spark.landing_schema import CHANGES
from tests.instep_spark.lake.change_log_kit import PartialProvider
from tests.instep_spark.lake.change_model_kit import comparable
from tests.instep_spark.lake.change_only_kit import ChangeOnly, ChangeRecords, bodies_of_a_store
from tests.instep_spark.lake.log_kit import Change, Row

COLUMNS = [column.name for column in CHANGES]


def cells(row: Row) -> dict[str, Any]:
    return dict(zip(COLUMNS, row.cells, strict=True))


def read(rows: Sequence[Row], chunk_rows: int) -> dict[str, str]:
    """The entities by key."""
    stored, _ = chunk_by_chunk(rows, chunk_rows)
    return {row["key"]: row["body"] for row in stored.values()}


Said = tuple[Any, ...]
"""Ordinal, key, whether it ends, place and content."""


def news(rows: Sequence[Row], said: Iterable[Said]) -> list[Said]:
    """What is said of entities, without sweeps and ends by which nothing has changed."""
    silent = {row.ordinal for row in rows if row.kind == "SWEEP" or row.ends}
    last: dict[str, list[Any]] = {}
    found: list[Said] = []
    for ordinal, key, *facts in sorted(said, key=itemgetter(0, 1)):
        before = last.get(key, [True])
        if ordinal not in silent or (facts != before and not (facts[0] and before[0])):
            found.append((ordinal, key, *facts))
        last[key] = facts
    return found


def chunk_by_chunk(
    rows: Sequence[Row], chunk_rows: int
) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]]]:
    """The last rows by id, and all rows; kept and loaded by their names between chunks, as the
    pipeline does.
    """
    stored: dict[str, dict[str, Any]] = {}
    made: list[dict[str, Any]] = []
    sweeps = [at for at, row in enumerate(rows) if row.kind == "SWEEP"]
    began = {row.attempt: row.committed_at for row in rows if row.kind == "ATTEMPT"}
    ends = sorted({*range(chunk_rows, len(rows), chunk_rows), *sweeps, len(rows)})
    begin = 0
    for end in ends:
        chunk = [cells(row) for row in rows[begin:end] if row.key]
        names = names_in(chunk)
        composer = loaded(row for row in stored.values() if names & set(row["names"]))
        touched = {row["id"] for row in composer.rows}
        stated = [out for row in chunk if (out := composer.apply(row))]
        keep(stored, touched, composer, stated)
        made += stated
        if end in sweeps:
            attempt = rows[end].attempt
            composer = loaded(stored.values())
            pruned = composer.prune(attempt, end + 1, began[attempt])
            keep(stored, {row["id"] for row in pruned}, composer, pruned)
            made += pruned
            stored = {one: row for one, row in stored.items() if row["attempt"] >= attempt}
        begin = end
    return stored, made


def loaded(rows: Iterable[dict[str, Any]]) -> Composer:
    composer = Composer()
    for row in rows:
        composer.load(dict(row))
    return composer


def keep(
    stored: dict[str, dict[str, Any]],
    known: set[str],
    composer: Composer,
    stated: list[dict[str, Any]],
) -> None:
    composer.finish(stated)
    for row in stated:
        if row["kind"] != UNRESOLVED and row["id"] in known:
            stored.pop(row["id"], None)
    stored.update((row["id"], row) for row in stated if row["last"])


@pytest.mark.asyncio
@pytest.mark.parametrize("seed", range(25))
async def test_a_lake_composes_as_a_store_does(seed: int) -> None:
    rows = ChangeOnly(seed).run(60)
    found = read(rows, 1)
    assert read(rows, 7) == found == read(rows, 10_000)
    store = await bodies_of_a_store(rows, 1)
    assert {key: json.loads(body) for key, body in found.items()} == {
        key: json.loads(body) for key, body in store.items()
    }


@pytest.mark.asyncio
@pytest.mark.parametrize("seed", range(10))
async def test_v3_2_5_2_change_records_amount_to_what_the_provider_has(seed: int) -> None:
    log = ChangeRecords(seed)
    rows = log.run(60)
    assert {row.kind for row in rows} > {"CHANGE", "CREATE_UPDATE", "SWEEP"}
    for chunk_rows in (1, 7, 10_000):
        found = {key: json.loads(body) for key, body in read(rows, chunk_rows).items()}
        assert found == log.truth
    stored = await bodies_of_a_store(rows, 5)
    assert {key: json.loads(body) for key, body in stored.items()} == log.truth


def test_the_end_of_a_part_under_a_key_of_its_own_leaves_the_entity() -> None:
    def change(at: int, key: str, body: str | None) -> Row:
        ends = body is None
        kind, uuid = ("DELETE", "") if ends else ("CREATE_UPDATE", "u1")
        row = Change("c", "s", at, kind, key, f"t{at}", "p", at, at, ends=ends, content=body)
        return replace(row, whole=False, uuid=uuid)

    log = [
        change(1, "u1", '{"uuid":"u1"}'),
        change(2, "x", '{"uuid":"u1","a":1}'),
        change(3, "x", None),
    ]
    assert read(log, 1) == read(log, 3) == {"u1": '{"uuid":"u1"}'}


@pytest.mark.asyncio
@pytest.mark.parametrize("seed", range(50))
async def test_changes_amount_to_what_the_specification_says(seed: int) -> None:
    provider = PartialProvider(seed, offsets=seed % 3 != 0, full_history=seed % 4 == 1)
    provider.run(40)
    provider.realign()
    wanted = [
        (row.ordinal, row.key, row.ends, row.appended_at, row.body)
        for row in provider.statements
        if row.key
    ]
    for chunk_rows in (1, 7, 10_000):
        rows = chunk_by_chunk(provider.rows, chunk_rows)[1]
        found = [
            (row["ordinal"], row["key"], row["ends"], row["appended_at"], comparable(row["body"]))
            for row in rows
            if row["kind"] != UNRESOLVED
        ]
        # What is stated again is spelled as before: other tables tell by that that nothing changed.
        for row, after in pairwise(sorted(rows, key=itemgetter("id"))):
            places = [(one["id"], one["lineage"], one["appended_at"]) for one in (row, after)]
            if places[0] == places[1] and comparable(row["body"]) == comparable(after["body"]):
                assert row["body"] == after["body"]
        assert news(provider.rows, found) == news(provider.rows, wanted)
    alive = {row.key: row.body for row in provider.alive}
    stored = await bodies_of_a_store(provider.rows, 1)
    assert {key: comparable(body.decode()) for key, body in stored.items()} == alive


@pytest.mark.parametrize("ended", [False, True])
def test_v3_2_5_2_a_change_of_what_is_not_known_makes_no_row(ended: bool) -> None:
    begin = [
        Change("c", "s", 1, "CREATE_UPDATE", "a", "t1", "p", 1, 1, 1, content='{"uuid":"a"}'),
        Change("c", "s", 2, "DELETE", "a", "t2", "p", 2, 2, 2, ends=True),
    ]
    change = Change("c", "s", 3, "CHANGE", "a", "t3", "p", 3, 3, 3, content='{"x":1}', whole=False)
    rows = [*begin, change] if ended else [change]
    stored, made = chunk_by_chunk(rows, 10)
    assert [row["kind"] for row in made] == (["CREATE_UPDATE", "DELETE"] if ended else [])
    assert all(row["ends"] for row in stored.values())


def test_v3_2_3_10_a_change_without_parent_address_leaves_the_entity_in_its_place() -> None:
    place = '{"parent-address":["node-uuid:n"],"x":1}'
    begin = Change("c", "s", 1, "CREATE_UPDATE", "a", "t1", "p", 1, 1, 1, content='{"uuid":"a"}')
    change = Change("c", "s", 2, "CHANGE", "a", "t2", "p", 2, 2, 2, content='{"y":1}', whole=False)
    rows = [replace(begin, envelope=place), replace(change, envelope='{"x":2}')]
    stored, _ = chunk_by_chunk(rows, 1)
    (row,) = stored.values()
    assert json.loads(row["envelope"]) == {"parent-address": ["node-uuid:n"], "x": 2}
