"""Changes become whole statements as in a SQL store, however often they are kept between."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from instep_spark.lake.tables.composer import UNRESOLVED, Composer, names_in
from instep_spark.landing_schema import CHANGES
from tests.instep_spark.lake.change_only_kit import ChangeOnly, bodies_of_a_store
from tests.instep_spark.lake.log_kit import Row

COLUMNS = [column.name for column in CHANGES]


def cells(row: Row) -> dict[str, Any]:
    return dict(zip(COLUMNS, row.cells, strict=True))


def read(rows: Sequence[Row], chunk_rows: int) -> dict[str, str]:
    """The entities by key; kept and loaded by their names between chunks, as the pipeline does."""
    stored: dict[str, dict[str, Any]] = {}
    sweeps = [at for at, row in enumerate(rows) if row.kind == "SWEEP"]
    ends = sorted({*range(chunk_rows, len(rows), chunk_rows), *sweeps, len(rows)})
    begin = 0
    for end in ends:
        chunk = [cells(row) for row in rows[begin:end] if row.key]
        names = names_in(chunk)
        composer = loaded(row for row in stored.values() if names & set(row["names"]))
        touched = {row["id"] for row in composer.rows}
        keep(stored, touched, composer, [out for row in chunk if (out := composer.apply(row))])
        if end in sweeps:
            attempt = rows[end].attempt
            composer = loaded(stored.values())
            pruned = composer.prune(attempt, end + 1)
            keep(stored, {row["id"] for row in pruned}, composer, pruned)
            stored = {one: row for one, row in stored.items() if row["attempt"] >= attempt}
        begin = end
    return {row["key"]: row["body"] for row in stored.values()}


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
