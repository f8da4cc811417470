"""Hostile records: refused with a reason where no store could hold them, else kept as plain
data.
"""

from __future__ import annotations

import asyncio
import json
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from instep import Consumer, ConsumerSettings
from instep.cli.app import app
from instep.errors import UnreachableError
from instep.runtime.retry import Environment
from instep_sql import SqlStore
from instep_tapi.facts.names import class_of
from instep_tapi.wire import decoder
from tests.instep_tapi.hostile_kit import DEADLINE_S, Peer, frame, hostile_stream, record
from tests.instep_tapi.log_record_kit import log_record, only, read, refused

MIB = 1024 * 1024
IDS = "full-log-record-offset-id"
EVIL = "x'); DROP TABLE instep_entity; --"
STEERING = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202egnp.exe\r[bold]"


def at(partition: Any, offset: Any) -> list[dict[str, Any]]:
    return [
        {"value-name": "partition", "value": partition},
        {"value-name": "offset", "value": offset},
    ]


@pytest.mark.parametrize("offset", [2**63, -1, 10**30, "9" * 5_000, str(2**63), "1e400", "0x10"])
def test_an_offset_that_no_store_can_hold_is_no_offset(offset: Any) -> None:
    chunk = read(log_record(**{IDS: at("0", offset)}))
    assert only(chunk).offset == -1
    assert chunk.deviations["offset-unreadable"] == 1


@pytest.mark.parametrize(
    "stamp",
    [
        "99999-01-01T00:00:00Z",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
        "99991231235959.9-2359",
        "00010101000000.0+2359",
        "2021-04-28T14:14:28.780Z" + "0" * 10_000,
        10**400,
        -(10**20),
        1e300,
    ],
)
def test_a_time_that_no_store_can_hold_is_kept_as_unreadable(stamp: Any) -> None:
    chunk = read(log_record(**{"log-append-time-stamp": stamp}))
    assert len(chunk.records) + len(chunk.unreadable) == 1
    assert all(abs(one.appended_at_us) < 2**62 for one in chunk.records)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"entity-key": "k" * 4_097}, "4097 characters"),
        ({"token": "t" * 4_097}, "4097 characters"),
        ({"token": "a\0"}, "NUL"),
        ({"record-type": "R" * 129}, "too long"),
        ({IDS: at("p" * 129, "1")}, "is no partition"),
        ({IDS: at("p\0", "1")}, "is no partition"),
        ({"body": {"record-content": "C" * 129, "x": {}}}, "is no class"),
        ({"body": {"record-content": "C" * 300, "x": {}}}, "too long to be a class"),
        ({"body": {"record-content": "A\0", "x": {}}}, "is no class"),
        ({"body": {"x" * 129: {}}}, "is no class's"),
        ({"entity-key": 10**4_200}, "4201 characters"),
    ],
)
def test_what_no_store_can_hold_is_refused(changes: dict[str, Any], reason: str) -> None:
    assert reason in refused(log_record(**changes))


@pytest.mark.parametrize("uuid", ["u" * 4_097, "a\0b"])
def test_a_uuid_that_no_store_can_hold_is_refused(uuid: str) -> None:
    body = {"record-content": "NODE", "node": {"uuid": uuid}}
    chunk = read(log_record(body=body), with_uuid=True)
    [unreadable] = chunk.unreadable
    assert "uuid" in unreadable.reason


def test_half_a_character_is_no_text() -> None:
    frame_ = json.dumps(log_record(**{"entity-key": "KEY"})).replace('"KEY"', '"\\ud800"')
    chunk = read(frame_.encode())
    assert not chunk.records
    assert chunk.unreadable


def test_partitions_are_bounded() -> None:
    frames = [log_record(**{IDS: at(str(n), "1")}) for n in range(decoder.MAX_PARTITIONS + 10)]
    chunk = read(*frames)
    assert len(chunk.records) == decoder.MAX_PARTITIONS
    assert {one.reason for one in chunk.unreadable} == {"more than 1,024 partitions"}


def test_names_of_members_are_not_remembered_without_limit() -> None:
    with pytest.raises(ValueError, match="is no class's"):
        class_of("x" * 10**6)


@pytest.mark.parametrize(
    ("count", "kept"), [(decoder.MAX_FRAME_UNREADABLE, None), (10_000, 1), (1_300_000, 1)]
)
def test_a_frame_of_rubbish_is_kept_once(count: int, kept: int | None) -> None:
    tracemalloc.start()
    try:
        chunk = read(b"[" + b'{"token":1},' * (count - 1) + b'{"token":1}]')
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not chunk.records
    assert len(chunk.unreadable) == (kept or count)
    assert peak_bytes < 256 * MIB


def test_rubbish_in_a_frame_does_not_cost_its_neighbours() -> None:
    chunk = read([{"token": "t"}] * 500 + [log_record()])
    assert len(chunk.records) == 1
    [unreadable] = chunk.unreadable
    assert unreadable.reason.startswith("more than 100 records of the frame: no log-record-header")


def test_a_stream_of_an_unusual_shape_is_read_like_any_other_and_found_out_when_it_changes() -> (
    None
):
    unusual = {"log-record": log_record()}
    frames = [unusual] * 300 + [log_record()] * 300 + [b'{"token"'] + [log_record()] * 3
    chunk = read(*frames)
    assert len(chunk.records) == 603
    assert len(chunk.unreadable) == 1
    assert len(set(chunk.records)) == 1


async def served_into(store: str, frames: list[bytes], entities: int) -> None:
    """Run a consumer against a server that sends these frames, until so many records are stored."""

    async def serve(peer: Peer) -> None:
        await peer.upgrade()
        await peer.send(b"".join(map(frame, frames)))
        await asyncio.sleep(DEADLINE_S)

    async with (
        hostile_stream(serve) as source,
        Consumer("c", source, SqlStore(store)) as consumer,
        asyncio.timeout(DEADLINE_S),
    ):
        while sum(stream.records for stream in consumer.health().streams) < entities:
            assert "FAILED" not in consumer.health().state.upper(), consumer.health().error
            await asyncio.sleep(0.02)


def entities(url: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, ["entities", "--store", url, "--format", "jsonl"])
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_sql_and_terminal_escapes_are_plain_data(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'hostile.db'}"
    names = [
        EVIL,
        STEERING,
        "' OR 1=1 --",
        '"; --',
        "\ufffe\U0001f4a9",
        "../../../etc/passwd",
        "%s",
    ]
    frames = [
        record(
            n,
            **{
                "entity-key": name,
                IDS: at(name[:100], str(n)),
                "body": {"record-content": name[:100], "thing": {"uuid": name, name: name}},
            },
        )
        for n, name in enumerate(names)
    ]
    deep = b'{"a":' * 700 + b"1" + b"}" * 700
    frames.append(record(90, **{"entity-key": "deep"}).replace(b'"ODU LOF"', deep))
    frames += [b'["token",' + b"[" * 1_000_000, record(91, **{"entity-key": f"a\0{STEERING}"})]
    asyncio.run(served_into(url, frames, len(names) + 1))
    stored = {one["key"]: one for one in entities(url)}
    assert set(stored) == {*names, "deep"}
    for name in names:
        assert stored[name]["body"] == {"uuid": name, name: name}
    for command in (["entities"], ["status"], ["quarantine", "list"], ["quarantine", "show", "2"]):
        result = CliRunner().invoke(app, [*command, "--store", url])
        assert result.exit_code == 0, result.output
        assert not set(result.stdout) & set("\x1b\x07\x9b\u202e\r\0"), command


@pytest.mark.asyncio
async def test_a_provider_that_closes_at_once_meets_the_back_off() -> None:
    connections = 0

    async def serve(peer: Peer) -> None:
        nonlocal connections
        connections += 1
        await peer.upgrade()
        await peer.send(frame(record(connections, **{IDS: at("0", connections)})) + b"\x88\x00")

    class Chance(random.Random):
        waits = 0

        def uniform(self, a: float, b: float) -> float:
            self.waits += 1
            return super().uniform(a, b)

    chance = Chance(1)
    settings = ConsumerSettings(reconnect_initial_s=0.01, reconnect_attempts=6)
    environment = Environment(rng=chance)
    async with hostile_stream(serve) as source:
        store = SqlStore("sqlite://")
        async with Consumer("c", source, store, settings, environment=environment) as consumer:
            with pytest.raises(UnreachableError, match="closes the connection"):
                async with asyncio.timeout(DEADLINE_S):
                    await consumer.wait()
    assert connections == 6
    assert chance.waits >= 5


@pytest.mark.asyncio
async def test_a_deviation_is_emitted_once_however_often_it_is_seen() -> None:
    async def serve(peer: Peer) -> None:
        await peer.upgrade()
        for n in range(5):
            records = [record(100 * n + m, **{IDS: at("0", -1)}) for m in range(100)]
            await peer.send(b"".join(map(frame, records)))
            await asyncio.sleep(0.05)
        await asyncio.sleep(DEADLINE_S)

    async def listen(consumer: Consumer) -> list[str]:
        return [event.text async for event in consumer.events() if event.kind == "deviation"]

    async with (
        hostile_stream(serve) as source,
        Consumer("c", source, SqlStore("sqlite://")) as consumer,
        asyncio.timeout(DEADLINE_S),
    ):
        listening = asyncio.create_task(listen(consumer))
        counted: dict[str, int] = {}
        while counted.get("offset-unreadable", 0) < 500:
            await asyncio.sleep(0.02)
            for stream in consumer.health().streams:
                counted = stream.deviations
    reported = await listening
    assert sorted(reported) == sorted(set(reported)) == sorted(counted)
