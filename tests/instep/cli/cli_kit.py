"""A store as a consumer leaves it, for the commands that read; and a runner for them."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from typer.testing import CliRunner, Result

from instep import Phase, Record, RecordType, StreamInfo
from instep.cli.app import app
from instep.model import Batch, SweepStep, Unreadable
from instep_sql import SqlStore
from tests.json_names_kit import check_names

QUICK_CONFIG = """
[[consumers]]
name = "east"
source = {{ kind = "tapi", endpoints = ["{url}"] }}
sink = {{ kind = "sql", url = "sqlite:///{store}.db" }}
settings = {{ alignment = {{ quiet_s = 0.2, unreached_quiet_s = 0.5 }} }}
"""
T0_US = 1_700_000_000_123_456
T0 = "2023-11-14T22:13:20.123456Z"
READABLE_RAW = (
    b'{"log-record-header":{"token":"t9","log-append-time-stamp":"2023-11-14T22:14:00.000Z",'
    b'"entity-key":"k9","record-type":"RECORD_TYPE_CREATE_UPDATE",'
    b'"full-log-record-offset-id":[{"value-name":"offset","value":"9"}]},'
    b'"log-record-body":{"event-time-stamp":{"primary-time-stamp":"2023-11-14T22:14:00.000Z"},'
    b'"record-content":"NODE","node":{"uuid":"u9"}}}'
)
UNREADABLE_RAW = b'{"log-record-header": \xff'


def statement(number: int, body: bytes, entity_class: str = "NODE") -> Record:
    """Return the record with this number, for an entity of its own."""
    at_us = T0_US + number
    return Record(
        "network",
        f"k{number}",
        RecordType.CREATE_UPDATE,
        f"t{number}",
        at_us,
        "",
        number,
        entity_class,
        body,
    )


def info(stream: str) -> StreamInfo:
    """A compacted log of TAPI."""
    return StreamInfo(
        id=stream,
        origin="a/1",
        kind="tapi",
        compaction_delay_s=600.0,
        tombstone_retention_s=float("inf"),
    )


async def _fill(url: str, records: list[Record], **options: Any) -> None:
    async with SqlStore(url, **options) as store:
        await store.open("east")
        await store.position(info("quiet"))
        first = await store.position(info("network"))
        position = msgspec.structs.replace(
            first, token="t1", ordinal=1, attempt=1, lineage=1, records=len(records)
        )
        await store.commit(Batch("network", position, 0, records))
        # What the second attempt cannot read stays, unproven.
        position = msgspec.structs.replace(
            position,
            ordinal=2,
            attempt=2,
            phase=Phase.ALIGNED,
            appended_at_us=T0_US,
            watermark_us=T0_US,
        )
        await store.commit(
            Batch(
                "network",
                position,
                1,
                [statement(50, b'{"uuid":"u50"}')],
                [
                    Unreadable("network", READABLE_RAW, "no such spelling", "t9"),
                    Unreadable("network", UNREADABLE_RAW, "not JSON"),
                ],
                {"offset-backwards": 3, "identity-blanks": 1, "of-the-future": 2},
                SweepStep(2, readable=frozenset({"NODE"})),
            )
        )


def fill(folder: Path, *records: Record, **options: Any) -> str:
    """Make a store with a stream of these records and one without any. Returns its URL."""
    url = f"sqlite:///{folder / 'network.db'}"
    asyncio.run(_fill(url, list(records), **options))
    return url


def instep(*arguments: str) -> Result:
    """Run the command line in this process; names in JSON lines are those of the reference."""
    done = CliRunner().invoke(app, arguments)
    if {"jsonl", "--format=jsonl"} & {*arguments}:
        check_names(arguments, done.stdout)
    return done


def started(*arguments: str, **environ: str) -> subprocess.Popen[bytes]:
    """Run the command line in a process of its own."""
    program = [sys.executable, "-c", "from instep.cli import main; main()", *arguments]
    # Without asyncio's debug mode, which logs steps to stderr that are slow on a busy machine.
    environment = os.environ | {"PYTHONASYNCIODEBUG": ""} | environ
    return subprocess.Popen(
        program, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


@contextmanager
def small_provider(*options: str) -> Iterator[str]:
    """A small provider in a process of its own. Gives its URL."""
    small = ["--topology", "sndlib/polska", "--services", "5", "--alarms", "9"]
    with started("provider", *small, *options, "--format", "jsonl") as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            check_names(["provider"], line)
            yield json.loads(line)["url"]
        finally:
            process.kill()


def align_and_lose_a_node(config: Path, store: Path) -> None:
    """Let the consumer of a configuration align, and then remove an entity from its store."""
    with started("run", str(config), "--until-aligned") as process:
        process.communicate(timeout=60)
    with closing(sqlite3.connect(store)) as raw, raw:
        raw.execute(
            "DELETE FROM instep_entity WHERE id ="
            " (SELECT max(id) FROM instep_entity WHERE class = 'NODE')"
        )


def lines(result: Result) -> list[dict[str, Any]]:
    """The JSON lines of a command that has done its work."""
    assert result.exit_code == 0, result.stderr
    assert not result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def failed(result: Result, code: int) -> str:
    """Return the stderr of a command that failed; it wrote nothing to stdout, and no traceback."""
    assert result.exit_code == code, (result.stdout, result.stderr)
    assert not result.stdout
    assert "Traceback" not in result.stderr
    return result.stderr
