"""Each query of the dashboard runs on PostgreSQL, as a role that may read the public views only."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from instep.model import Batch
from instep.model.position import Position
from instep_sql import SqlStore
from tests.instep.cli.cli_kit import info, statement
from tests.postgres_kit import Missing, Server, serving

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "grafana"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "instep.json").read_text())
MACROS = {
    r"\$__timeGroupAlias\((\w+), '1m'\)": r'date_trunc(\'minute\', \1) AS "time"',
    r"\$__timeFilter\((\w+)\)": r"\1 BETWEEN now() - interval '1 hour' AND now()",
    r"\$consumer": "'east', 'west'",
}
"""What Grafana puts in place of its macros and of the variable."""


def as_sent(query: str) -> str:
    for macro, text in MACROS.items():
        query = re.sub(macro, text.replace("\\'", "'"), query)
    assert "$" not in query
    return query


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    try:
        with serving() as started:
            yield started
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.mark.asyncio
async def test_every_query_runs_as_a_reader(server: Server) -> None:
    url = server.create()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE ROLE grafana LOGIN")
    async with SqlStore(url, journal="changes", alarms=True, readers=["grafana"]) as store:
        await store.open("east")
        await store.position(info("network"))
        position = Position(token="t1", ordinal=1, attempt=1, lineage=1, records=1)
        await store.commit(Batch("network", position, 0, [statement(1, b"{}")]))
    rows: dict[str, int] = {}
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET ROLE grafana")
        for panel in DASHBOARD["panels"]:
            for target in panel["targets"]:
                cursor = connection.execute(as_sent(target["rawSql"]).encode())
                rows[panel["title"]] = len(cursor.fetchall())
                if target["format"] == "time_series":
                    assert cursor.description is not None
                    assert [one.name for one in cursor.description][:2] == ["time", "metric"]
        for variable in DASHBOARD["templating"]["list"]:
            assert connection.execute(variable["query"].encode()).fetchall() == [("east",)]
    assert rows["Streams"] == rows["Entities"] == rows["Changes a minute"] == 1


def test_the_dashboard_asks_the_provisioned_source() -> None:
    [source] = yaml.safe_load((FOLDER / "datasource.yaml").read_text())["datasources"]
    asked = [*DASHBOARD["panels"], *DASHBOARD["templating"]["list"]]
    asked += [target for panel in DASHBOARD["panels"] for target in panel["targets"]]
    for one in asked:
        assert one["datasource"] == {"type": source["type"], "uid": source["uid"]}
    assert source["secureJsonData"] == {"password": "${INSTEP_DB_PASSWORD}"}
    [provider] = yaml.safe_load((FOLDER / "dashboards.yaml").read_text())["providers"]
    assert provider["type"] == "file"


def test_panels_lie_beside_each_other() -> None:
    places = [tuple(panel["gridPos"][name] for name in "xywh") for panel in DASHBOARD["panels"]]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(places)
    covered = [(x + i, y + j) for x, y, w, h in places for i in range(w) for j in range(h)]
    assert len(covered) == len(set(covered))
    assert all(x < 24 for x, _ in covered)
