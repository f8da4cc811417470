"""`instep follow` as a process, against a real provider that changes meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from instep.cli.output import Format
from instep.testing import SINK_PROMISES, check_sink
from instep_sql import SqlStore
from instep_tapi.cli.follow_entities import PrintingSink
from instep_tapi.cli.follow_printer import FollowPrinter
from instep_tapi_provider import Context, Faults, Provider
from tests.instep_tapi.source_kit import NODES, TRUNCATED, network, one_stream
from tests.json_names_kit import check_names

DEADLINE_S = 60.0
PROFILE = "network: TAPI 2.1.3: record-content is stated"
"""Said on stderr when a stream is found."""
ALL = 2 * NODES + 2
"""The entities of `network`: a context, a topology, its nodes with a node-edge-point each."""


class Followed(NamedTuple):
    """A process that follows."""

    process: asyncio.subprocess.Process

    async def line(self) -> dict[str, Any]:
        """The next line of JSON on stdout."""
        assert self.process.stdout
        raw = await asyncio.wait_for(self.process.stdout.readline(), DEADLINE_S)
        check_names(["follow"], raw)
        line: dict[str, Any] = json.loads(raw)
        return line

    async def lines(self, count: int) -> list[dict[str, Any]]:
        return [await self.line() for _ in range(count)]

    async def until(self, key: str) -> list[dict[str, Any]]:
        """The lines up to the first about this key."""
        found = [await self.line()]
        while found[-1]["key"] != key:
            found.append(await self.line())
        return found

    async def end(self) -> tuple[int, str, str]:
        """Wait for the end by itself: its code, and what is left of stdout and stderr."""
        out, err = await asyncio.wait_for(self.process.communicate(), DEADLINE_S)
        assert self.process.returncode is not None
        return self.process.returncode, out.decode(), err.decode()


@asynccontextmanager
async def following(*arguments: str, columns: int = 80) -> AsyncIterator[Followed]:
    environment = os.environ | {"PYTHONASYNCIODEBUG": "", "COLUMNS": str(columns)}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "instep.cli",
        "follow",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    try:
        yield Followed(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def ended(*arguments: str, columns: int = 80) -> tuple[int, str, str]:
    async with following(*arguments, columns=columns) as follower:
        return await follower.end()


@pytest.mark.asyncio
async def test_every_record_of_the_log_is_a_line_and_then_each_new_one() -> None:
    async with Provider(network(), one_stream()) as provider:
        truth = provider.entities("network")
        async with following(provider.url, "--format", "jsonl") as follower:
            lines = await follower.lines(len(truth))
            provider.update("n3", {"operational-state": "DISABLED"})
            newest = await follower.line()
            provider.delete("n4")
            deleted = await follower.until("n4")
    assert {line["key"]: (line["class"], line["body"]) for line in lines} == {
        key: (entity_class, json.loads(body)) for key, (entity_class, body) in truth.items()
    }
    assert (newest["kind"], newest["key"]) == ("CREATE_UPDATE", "n3")
    assert newest["body"]["operational-state"] == "DISABLED"
    assert {line["kind"] for line in deleted} <= {"DELETE", "TOMBSTONE"}
    assert all(line["ends"] for line in deleted)
    assert newest["token"]
    assert newest["offset"] > 0


@pytest.mark.asyncio
async def test_after_a_loss_it_goes_on_behind_the_last_record() -> None:
    async with (
        Provider(network(), one_stream()) as provider,
        following(provider.url, "--format", "jsonl") as follower,
    ):
        await follower.lines(ALL)
        provider.drop_clients()
        provider.update("n5", {"operational-state": "DISABLED"})
        assert (await follower.line())["key"] == "n5"
        follower.process.send_signal(signal.SIGTERM)
        code, out, err = await follower.end()
    said = [json.loads(line) for line in err.splitlines()]
    assert (code, out) == (0, "")
    assert said[0]["text"] == PROFILE
    assert "network: disconnected: " in said[1]["text"]
    assert said[-1]["text"] == f"stopped; {ALL + 1} records were printed"


@pytest.mark.asyncio
async def test_where_the_place_is_forgotten_it_is_read_from_the_oldest() -> None:
    async with (
        Provider(network(), one_stream(), faults=Faults(refuse_tokens=400)) as provider,
        following(provider.url, "--format", "jsonl") as follower,
    ):
        first = await follower.lines(ALL)
        provider.drop_clients()
        again = await follower.lines(ALL)
    assert [line["token"] for line in again] == [line["token"] for line in first]


@pytest.mark.asyncio
async def test_entities_are_created_changed_and_ended_once() -> None:
    # A record that comes twice says nothing new: of entities, it is no line.
    faults = Faults(duplicate_every=2)
    async with Provider(network(), one_stream(), faults=faults) as provider:
        truth = provider.entities("network")
        async with following(provider.url, "--entities", "--format", "jsonl") as follower:
            lines = await follower.lines(len(truth))
            provider.update("n3", {"operational-state": "DISABLED"})
            updated = await follower.line()
            provider.delete("n4")
            deleted = await follower.until("n4")
    assert {line["change"] for line in lines} == {"created"}
    assert {line["key"] for line in lines} == truth.keys()
    assert (updated["change"], updated["key"]) == ("updated", "n3")
    assert {line["change"] for line in deleted} == {"deleted"}


@pytest.mark.asyncio
async def test_entities_of_a_truncated_log_are_found_too() -> None:
    async with Provider(network(), one_stream(storage=TRUNCATED)) as provider:
        code, out, _ = await ended(
            provider.url, "--entities", "--format", "jsonl", "--limit", str(ALL)
        )
    assert code == 0
    assert {json.loads(line)["change"] for line in out.splitlines()} == {"created"}


@pytest.mark.asyncio
async def test_only_what_is_asked_for() -> None:
    async with Provider(network(), one_stream()) as provider:
        code, out, err = await ended(
            provider.url, "--class", "NODE", "--limit", "7", "--format", "jsonl"
        )
        none, _, why = await ended(provider.url, "--stream", "nope")
    assert (code, json.loads(err)["text"]) == (0, PROFILE)
    assert [json.loads(line)["class"] for line in out.splitlines()] == ["NODE"] * 7
    assert none == 2
    assert "network: other ids are asked for" in why


@pytest.mark.asyncio
async def test_from_the_latest_nothing_old_is_shown() -> None:
    async with (
        Provider(network(), one_stream()) as provider,
        following(provider.url, "--from", "latest", "--format", "jsonl") as follower,
    ):
        # A node changes until the follower is connected, and sees it.
        line = asyncio.create_task(follower.line())
        while not line.done():
            provider.update("n1", {"operational-state": "DISABLED"})
            provider.update("n1", {"operational-state": "ENABLED"})
            await asyncio.wait([line], timeout=0.2)
        assert line.result()["key"] == "n1"


@pytest.mark.asyncio
@pytest.mark.parametrize(("columns", "keys"), [(80, False), (140, True)])
async def test_what_a_stranger_writes_does_not_steer_the_terminal(columns: int, keys: bool) -> None:
    evil = "n\x1b[2J\x07\u202e"
    node = [{"uuid": evil, "name": [{"value-name": "n", "value": "\x1b]0;x"}]}]
    out = ""
    context = {
        "uuid": "c",
        "tapi-topology:topology-context": {"topology": [{"uuid": "t", "node": node}]},
    }
    async with Provider(Context(context), one_stream()) as provider:
        for output in ("table", "jsonl"):
            code, out, err = await ended(
                provider.url, "--class", "NODE", "--limit", "1", "--format", output, columns=columns
            )
            assert code == 0
            assert PROFILE in err
            assert all(line.isprintable() for line in out.splitlines()), ascii(out)
            assert all(len(line) <= columns for line in out.splitlines()) or output == "jsonl"
            assert ("network" in out) is (keys or output == "jsonl")
    assert json.loads(out)["key"] == evil


@pytest.mark.asyncio
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_it_and_it_says_so(number: signal.Signals) -> None:
    async with (
        Provider(network(), one_stream()) as provider,
        following(provider.url) as follower,
    ):
        assert follower.process.stdout
        for _ in range(2 + ALL):  # the heading, and all there is
            await asyncio.wait_for(follower.process.stdout.readline(), DEADLINE_S)
        follower.process.send_signal(number)
        code, out, err = await follower.end()
    assert (code, out) == (0, "")
    assert err == f"info: {PROFILE}\ninfo: stopped; {ALL} records were printed\n"


@pytest.mark.asyncio
async def test_wrong_usage_and_a_provider_that_is_not_there() -> None:
    code, out, err = await ended("http://127.0.0.1:1", "--entities", "--from", "latest")
    assert (code, out) == (2, "")
    assert "leave one of them out" in err
    code, out, err = await ended("http://127.0.0.1:1")
    assert (code, out) == (1, "")
    assert "the connection is refused" in err


@pytest.mark.asyncio
@pytest.mark.parametrize("promise", SINK_PROMISES)
async def test_the_sink_that_prints_keeps_the_promises_of_its_store(
    promise: str, tmp_path: Path
) -> None:
    printer = FollowPrinter(Format.JSONL, None)

    def make(name: str) -> PrintingSink:
        url = f"sqlite:///{tmp_path / name}.db"
        return PrintingSink(SqlStore(url, journal="bodies"), printer)

    await check_sink(make, only=promise)
