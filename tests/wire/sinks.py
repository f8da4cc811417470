"""The sinks: PostgreSQL behind a relay, for entities and for messages; and Delta, whose tables are
maintained between two runs.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

import psycopg
from deltalake import DeltaTable

from instep import Consumer, Receiver
from instep.testing.relay import Relay
from instep_spark import DeltaSink
from instep_sql import SqlStore
from instep_tapi.plugin import source as tapi
from tests.instep_spark.spark_server_kit import QUICK as QUICK_SPARK
from tests.postgres_kit import Server, serving
from tests.wire.listeners import LISTENERS, listen
from tests.wire.maintenance import Maintenance
from tests.wire.outcome import Outcome, Play, follow
from tests.wire.sources import QUICK, Changes, network_provider, stated

__all__ = ["delta", "lake", "postgresql", "postgresql_messages"]

_INSTEP: Final = [sys.executable, "-m", "instep.cli"]
STATEMENT_TIMEOUT_S: Final = 2.0
"""As all times, scaled: who hangs is given up a few seconds later."""
_LAKE: Final = """
[[consumers]]
name = "wire"
[consumers.source]
kind = "tapi"
endpoints = ["{provider}"]
[consumers.sink]
kind = "delta"
url = "{url}"
[consumers.sink.spark]
master = "local[2]"
[consumers.sink.spark.config]
"""


async def postgresql(play: Play, seed: int, folder: Path) -> Outcome:
    """The entities of a TAPI stream."""
    del folder
    with serving() as server:
        direct = server.create()
        async with network_provider() as provider, _relayed(server, play, seed) as relay:

            async def held() -> dict[str, Any]:
                rows = await asyncio.to_thread(_rows, direct, "SELECT key, body FROM instep_entity")
                return {key: json.loads(body) for key, body in rows}

            source = tapi.build({"endpoints": [provider.url]}, "wire")
            url = _through(direct, relay)
            store = SqlStore(url, statement_timeout_s=STATEMENT_TIMEOUT_S)
            async with Consumer("wire", source, store, QUICK) as consumer:
                if not play.from_start:
                    await consumer.aligned(30.0)
                    relay.rules[0].active = True
                outcome = await follow(
                    relay.rules[0],
                    relay,
                    heals=play.heals,
                    change=Changes(provider),
                    held=held,
                    truth=lambda: stated(provider),
                    health=consumer.health,
                )
                await relay.cut()  # what hangs must not hold up the end
                return outcome


async def postgresql_messages(play: Play, seed: int, folder: Path) -> Outcome:
    """The messages of a DIDComm receiver, whose senders are acknowledged when they are durable."""
    del folder
    with serving() as server:
        direct = server.create()
        async with _relayed(server, play, seed) as relay:
            url = _through(direct, relay)
            store = SqlStore(url, statement_timeout_s=STATEMENT_TIMEOUT_S)
            async with Receiver("wire", LISTENERS["didcomm"](), store) as receiver:
                await receiver.aligned(30.0)
                relay.rules[0].active = True

                def rows() -> list[bytes]:
                    found = _rows(direct, "SELECT body FROM instep_message ORDER BY id")
                    return [bytes(body) for (body,) in found]

                rule = relay.rules[0]
                address = receiver.address
                outcome = await listen(
                    "didcomm", play, rule, relay, receiver, address, rows, acknowledged_s=30.0
                )
                await relay.cut()  # what hangs must not hold up the end
                return outcome


def _relayed(server: Server, play: Play, seed: int) -> Relay:
    return Relay(f"127.0.0.1:{server.port}", [play.rule()], seed=seed)


def _through(direct: str, relay: Relay) -> str:
    return f"postgresql://postgres@{relay.address}/{direct.rpartition('/')[2]}"


def _rows(direct: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(direct, autocommit=True) as connection:
        try:
            return connection.execute(query.encode()).fetchall()
        except psycopg.errors.UndefinedTable:
            return []


async def delta(play: Play, seed: int, folder: Path) -> Outcome:
    """What a sink lands, in two runs, as another engine reads it."""
    del seed
    rule, url = play.make(), (folder / "lake").as_uri()
    assert isinstance(rule, Maintenance)
    async with network_provider() as provider:
        for run in range(2):
            await _land(provider.url, url, Changes(provider))
            if not run:
                await asyncio.to_thread(rule.maintain, url)
        if not rule.played:
            return Outcome("not played")
        rows = DeltaTable(f"{url}/changes").to_pyarrow_table().to_pylist()
        rows.sort(key=lambda row: row["ordinal"])
        if [row["ordinal"] for row in rows] != list(range(1, len(rows) + 1)):
            twice = [n for n, count in Counter(r["ordinal"] for r in rows).items() if count > 1]
            return Outcome("differs", f"{len(rows)} rows, ordinals twice: {twice}")
        newest = {row["key"]: row["body"] for row in rows if row["kind"] == "CREATE_UPDATE"}
        return _compare({key: json.loads(body) for key, body in newest.items()}, stated(provider))


async def lake(play: Play, seed: int, folder: Path) -> Outcome:
    """What the pipeline on Spark makes of it: off while the tables are maintained."""
    del seed
    rule, url = play.make(), (folder / "lake").as_uri()
    assert isinstance(rule, Maintenance)
    config = folder / "instep.toml"
    async with network_provider() as provider:
        quick = "".join(f'"{key}" = "{value}"\n' for key, value in QUICK_SPARK.items())
        config.write_text(_LAKE.format(provider=provider.url, url=url) + quick)
        changes = Changes(provider)
        await _land(provider.url, url, changes)
        if error := await _pipeline(config):
            return Outcome("differs", f"the first run: {error}")
        await _land(provider.url, url, changes)
        await asyncio.to_thread(rule.maintain, url)
        if not rule.played:
            return Outcome("not played")
        if error := await _pipeline(config):
            return Outcome("differs", error)
        found = DeltaTable(f"{url}/entities").to_pyarrow_table(columns=["key", "body"]).to_pylist()
        return _compare({row["key"]: json.loads(row["body"]) for row in found}, stated(provider))


async def _land(provider: str, url: str, change: Changes) -> None:
    """One run of the sink: until it is aligned, and some changes more, each a file."""
    source = tapi.build({"endpoints": [provider]}, "wire")
    sink = DeltaSink(url, commit_interval_s=0)
    async with Consumer("wire", source, sink, QUICK) as consumer:
        await consumer.aligned(60.0)
        for _ in range(5):
            records = consumer.health().streams[0].records
            await change()
            async with asyncio.timeout(30.0):
                while consumer.health().streams[0].records == records:
                    await asyncio.sleep(0.02)


async def _pipeline(config: Path) -> str:
    """Run it once. Returns what it says where it fails."""
    command = [*_INSTEP, "lake", "run", str(config), "--once", "--tables", "alarms"]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode == 0:
        return ""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    named = [line for line in lines if "[" in line and "]" in line]
    return f"exit {done.returncode}: {' '.join((named or lines or ['nothing'])[-1].split())[:200]}"


def _compare(held: dict[str, Any], truth: dict[str, Any]) -> Outcome:
    if held == truth:
        return Outcome("ok")
    missing, phantoms = truth.keys() - held.keys(), held.keys() - truth.keys()
    other = sum(held[key] != truth[key] for key in held.keys() & truth.keys())
    told = f"{len(missing)} missing, {len(phantoms)} phantoms, {other} different of {len(truth)}"
    return Outcome("differs", told)
