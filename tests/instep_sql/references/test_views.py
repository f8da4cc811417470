"""The SQL that the how-to shows answers what it says, on each database."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, TextClause, text

from tests.instep_sql.references.references_kit import network, statement

pytestmark = pytest.mark.asyncio

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "references.md"


async def test_the_queries_of_the_page(database: str) -> None:
    (block,) = re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    alarms, path, unresolved = filter(str.strip, block.split(";"))
    async with network(database, clock_us=lambda: 1_667_562_629_000_123) as at:
        service = {"uuid": "S", "connection": [{"connection-uuid": "C"}]}
        await at.commit(statement("services", "s", "CONNECTIVITY_SERVICE", service))
        ends = [{"node-uuid": "N", "connection-end-point-uuid": uuid} for uuid in ("E", "F")]
        address = "node-uuid:N", "node-edge-point-uuid:P"
        point = statement("points", "e", "CONNECTION_END_POINT", {"uuid": "E"}, *address)
        await at.commit(point)
        connection = {"uuid": "C", "connection-end-point": ends}
        await at.commit(statement("connections", "c", "CONNECTION", connection))
        await at.commit(
            *[
                statement("alarms", key, "CONDITION_DETECTOR", {"measured-entity-uuid": uuid})
                for key, uuid in (("of E", "E"), ("of S", "S"), ("of N", "N"))
            ]
        )

        async def ask(query: str, **values: Any) -> list[tuple[Any, ...]]:
            rows = await at.reader._fetch(lambda asked: asked.execute(text(query), values).all())
            return sorted(tuple(row) for row in rows)

        assert await ask(alarms, service="S") == [("of E",), ("of S",)]
        assert await ask(path, connection="C") == [
            ("E", "node-edge-point-uuid", "P"),
            ("E", "node-uuid", "N"),
        ]
        found = [row[:3] for row in await ask(unresolved)]
        assert found == [
            ("CONDITION_DETECTOR", "measured-entity-uuid", 1),
            ("CONNECTION", "connection-end-point-uuid", 1),
            ("CONNECTION", "node-uuid", 1),
        ]
        (since,) = {str(row[3]) for row in await ask(unresolved)}
        assert since.replace(" ", "T").startswith("2022-11-04T11:50:29.000123")


async def test_an_entity_of_a_local_class_has_the_uuid_that_its_place_makes(database: str) -> None:
    async with network(database) as at:
        rule = {"local-id": "r1", "other-uuid": "X"}
        await at.commit(statement("rules", "r", "RULE", rule, "node-rule-group-uuid:G"))
        for view, column, found in (
            ("instep_places", "ancestor", "G"),
            ("instep_references", "target", "X"),
        ):
            query = text(f"SELECT {column} FROM {view} WHERE uuid = 'G/r1'")

            def ask(asked: Connection, query: TextClause = query) -> list[tuple[Any, ...]]:
                return [tuple(row) for row in asked.execute(query)]

            assert await at.reader._fetch(ask) == [(found,)]
