"""A hundred thousand entities of thirty classes over twenty streams, in one database
(TR-548 ST-4.1, 3.6.7, ST-4.2).
"""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import psycopg
import pytest

from instep.cli.worker import multi_process_consumer
from instep.config.file import load
from instep.config.plugins import build_sink, build_source
from instep.ports import Source
from instep.runtime.workers.consumer import MultiProcessConsumer
from instep_tapi.facts.names import StreamState
from instep_tapi_provider import Provider, ProviderSettings
from tests.docs.snippets_kit import snippets
from tests.end_to_end.country_kit import ALARMS, STREAMS, country, stream_settings
from tests.end_to_end.site_kit import Site, until
from tests.end_to_end.test_failover import gone
from tests.end_to_end.test_workers import running
from tests.postgres_kit import Missing, serving

pytestmark = pytest.mark.asyncio

PAGE = Path(__file__).parents[2] / "docs/how-to/references.md"
ALIGNED_S = 900
TRIES = 20
CONFIG = """
[[consumers]]
name = "country"
workers = 3
[consumers.source]
kind = "tapi"
endpoints = ["{first}", "{second}"]
fail_over = {{ leave_after_s = 0.0, probe_every_s = 0.05 }}
[consumers.sink]
kind = "sql"
url = "{store}"
references = true
[consumers.settings]
reconnect_initial_s = 0.05
reconnect_max_s = 0.5
poll_state_s = 0.5
discover_every_s = 0.5
alignment = {{ quiet_s = 1.0, unreached_quiet_s = 5.0 }}
"""


def consumer(folder: Path, store: str, first: str, second: str) -> MultiProcessConsumer:
    file = folder / "instep.toml"
    file.write_text(CONFIG.format(store=store, first=first, second=second))
    (one,) = load(file).consumers
    source = build_source(one.source)
    assert isinstance(source, Source)
    return multi_process_consumer(one, source, build_sink(one.sink))


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/store.db"
        return
    with ExitStack() as stack:
        try:
            server = stack.enter_context(serving())
        except Missing as missing:
            pytest.skip(str(missing))
        yield server.create()


def documented_queries(service: str, connection: str) -> dict[str, str]:
    """The SQL of the page, by the words of its first line."""
    text = next(s.text for s in snippets(PAGE.read_text()) if s.language == "sql")
    found = {}
    for statement in text.split(";"):
        if "SELECT" in statement:
            comment, _, sql = statement.strip().partition("\n")
            sql = sql.replace(":service", f"'{service}'").replace(":connection", f"'{connection}'")
            found[comment.removeprefix("-- ").split(",")[0].split(":")[0]] = sql
    return found


class Database:
    """The store, as an operator asks it."""

    def __init__(self, url: str) -> None:
        self._sqlite = url.startswith("sqlite")
        self._connection: Any = (
            sqlite3.connect(url.removeprefix("sqlite:///"))
            if self._sqlite
            else psycopg.connect(url, autocommit=True)
        )

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        return list(self._connection.execute(sql).fetchall())

    def plan(self, sql: str) -> str:
        explain = "EXPLAIN QUERY PLAN " if self._sqlite else "EXPLAIN (COSTS OFF) "
        return "\n".join(str(row[-1]) for row in self.ask(explain + sql))

    def analyze(self) -> None:
        """What PostgreSQL does by itself after a while."""
        if not self._sqlite:
            self._connection.execute("ANALYZE")

    def close(self) -> None:
        self._connection.close()


async def all_equal(here: Site) -> None:
    for stream in STREAMS:
        await here.equal(stream)


@pytest.mark.long
@pytest.mark.timeout(3 * ALIGNED_S)
async def test_a_country_is_followed_whatever_happens(store: str, tmp_path: Path) -> None:
    nodes = int(os.environ.get("NODES", "1000"))
    settings = ProviderSettings(streams=stream_settings())
    first, second = (Provider(country(nodes), settings) for _ in range(2))
    for served in (first, second):
        for k in range(0, nodes, 2):
            served.raise_alarm(f"cep{k}-0", detector=k)
    async with first, second:
        here = Site(first, tmp_path)
        here.url = store
        first.pause("link", StreamState.TERMINATED)
        made = consumer(tmp_path, store, first.url, second.url)
        began_s = time.monotonic()
        async with running(made) as it:
            await it.consumer.aligned(ALIGNED_S)
            print(f"aligned after {time.monotonic() - began_s:.0f} s")
            streams = {name for name in STREAMS if name != "link"}
            assert {one.stream for one in it.consumer.health().streams} == streams

            first.activate("link")
            second.update("node1", {"operational-state": "DISABLED"})
            first.update("node1", {"operational-state": "DISABLED"})
            await until(lambda: "link" in it.kinds("stream-found"), "the stream is found")
            await it.consumer.aligned(ALIGNED_S)
            await here.equal("link")

            first.pause("node-edge-point")
            for served in (first, second):
                served.update("port1-1", {"operational-state": "DISABLED"})
                served.delete("service2")
            await here.equal("connectivity-service")
            first.activate("node-edge-point")
            await here.equal("node-edge-point")

            before = dict(it.pids)
            os.kill(before[2], signal.SIGKILL)
            for served in (first, second):
                served.update("connection3", {"operational-state": "DISABLED"})
            await until(lambda: it.pids[2] != before[2], "the worker is started again")
            await it.consumer.aligned(ALIGNED_S)
            await all_equal(here)

            # The instance that is left does not know what the other one states then.
            second.delete("node7")
            down = await gone(first)
            here.provider = second
            await until(
                lambda: {s.endpoint for s in it.consumer.health().streams} == {second.url},
                "all streams are read at the other instance",
            )
            await it.consumer.aligned(ALIGNED_S)
            await all_equal(here)
            down.cancel()

    truth = [one for stream in STREAMS for one in second.entities(stream).values()]
    database = Database(store)
    try:
        counts = database.ask("SELECT class, count(*) FROM instep_entities GROUP BY class")
        assert dict(counts) == Counter(cls for cls, _ in truth)
        assert len(counts) >= 30
        print(f"{len(truth):,} entities of {len(counts)} classes")
        answers = ask_as_an_operator(database)
    finally:
        database.close()
    alarm = next(iter(second.entities(ALARMS)))
    assert answers["the alarms of a service"] == [(alarm,)]
    path = answers["the path of a connection"]
    assert [row for row in path if row[1] != "topology-uuid"] == [
        ("cep0-0", "node-uuid", "node0"),
        ("cep0-0", "node-edge-point-uuid", "port0-0"),
        ("cep1-2", "node-uuid", "node1"),
        ("cep1-2", "node-edge-point-uuid", "port1-2"),
    ]
    # Of the node that has gone, its ports and their points are gone, too.
    assert sum(row[2] for row in answers["unresolved references"]) > 0


def ask_as_an_operator(database: Database) -> dict[str, list[tuple[Any, ...]]]:
    """The answers to the queries of the page; prints how long each takes, and its plan."""
    database.analyze()
    answers = {}
    for name, sql in documented_queries("service0", "connection0").items():
        took_s = []
        for _ in range(TRIES):
            began_s = time.perf_counter()
            answers[name] = database.ask(sql)
            took_s.append(time.perf_counter() - began_s)
        print(f"{name}: {1000 * median(took_s):.1f} ms\n{database.plan(sql)}")
    return answers
