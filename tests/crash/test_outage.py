"""The store is unavailable for a while, under a storm: health reports why, and nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import resource
import subprocess
from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from instep import Consumer, ConsumerSettings, ConsumerState, IntakeSettings, Receiver
from instep_didcomm import DidcommListener
from instep_didcomm import read_options as read_didcomm
from instep_sql import SqlStore
from instep_sql.plugin import sink
from instep_tapi import TapiSource, read_options
from instep_tapi_provider import Provider
from tests.crash.message_receiver import PROTOCOL
from tests.crash.messages import message
from tests.crash.site_kit import compare, site, store_url
from tests.end_to_end.site_kit import QUICK, provider
from tests.instep_wsr import wsr_kit
from tests.instep_wsrm import rm_kit
from tests.postgres_kit import Missing, serving

DEADLINE_S = 60.0
ROOM_BYTES = 12 << 20


@contextlib.asynccontextmanager
async def following(store: str) -> AsyncIterator[tuple[Provider, Consumer]]:
    """A provider that storms, and a consumer of it that was aligned once."""
    async with provider() as served:
        built = TapiSource(read_options({"endpoints": [served.url]}, "outage"))
        async with Consumer("outage", built, SqlStore(store), QUICK) as consumer:
            await consumer.aligned(DEADLINE_S)
            await served.start_storm(400.0, 300)
            yield served, consumer


async def cause_reported(consumer: Consumer, cause: str) -> None:
    """Wait until health reports this cause."""
    async with asyncio.timeout(DEADLINE_S):
        while cause not in consumer.health().streams[0].last_error:
            await asyncio.sleep(0.02)


async def recovered(served: Provider, consumer: Consumer, store: str) -> None:
    """Without help, without a new attempt, and with all that the provider states."""
    async with asyncio.timeout(DEADLINE_S):
        while consumer.health().state is not ConsumerState.RUNNING:
            await asyncio.sleep(0.02)
        await served.stop_storm()
        truth = {key: body for key, (_, body) in served.entities("all").items()}
        while await held(store) != truth:
            await asyncio.sleep(0.1)
    stream = consumer.health().streams[0]
    assert (stream.attempt, stream.last_error) == (1, "")


async def held(store: str) -> dict[str, bytes]:
    reader = sink.reader(store)
    try:
        return {entity.key: entity.body async for entity in reader.entities()}
    finally:
        await reader.close()


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of a few MiB; skips where none can be mounted."""
    asked = ["mount", "-t", "tmpfs", "-o", f"size={ROOM_BYTES}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(asked, capture_output=True, check=False).returncode:
        pytest.skip("a small file system cannot be mounted here: it takes root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(file: Path) -> None:
    """Take all the room that is left."""
    with file.open("wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(4096))
        except OSError as full:
            if full.errno != errno.ENOSPC:
                raise


@pytest.mark.timeout(240)
@pytest.mark.asyncio
async def test_a_disk_that_is_full_is_reported_and_waited_for(tmp_path: Path) -> None:
    with small_disk(tmp_path) as folder:
        store = f"sqlite:///{folder}/store.db"
        async with following(store) as (served, consumer):
            await asyncio.to_thread(fill, folder / "filler")
            await cause_reported(consumer, "the disk is full — make room")
            (folder / "filler").unlink()
            await recovered(served, consumer, store)


@pytest.mark.timeout(240)
def test_a_file_that_may_not_grow_is_reported_by_the_process_and_waited_for() -> None:
    with store_url("sqlite") as store, site(store, "--storm", "300") as here:
        with here.run("--period", "0.2") as process:
            try:
                assert process.stdout is not None
                lines = map(json.loads, process.stdout)
                next(line for line in lines if line["event"] == "aligned")
                _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
                wal = Path(f"{store.removeprefix('sqlite:///')}-wal")
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (wal.stat().st_size, hard))
                healths = (line for line in lines if line["event"] == "health")
                cause = "the disk could not be read or written"
                next(h for h in healths if any(cause in s["last_error"] for s in h["streams"]))
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (hard, hard))
                next(h for h in healths if h["state"] == "running")
                here.command("storm", changes_per_s=0)
                # Its lines have to be read until it has caught up.
                for _ in healths:
                    if not compare(here):
                        break
            finally:
                process.terminate()
                process.communicate(timeout=30)
        assert process.returncode == 0
        positions, _ = here.durable()
        assert {position.attempt for position in positions.values()} == {1}


@pytest.mark.timeout(240)
@pytest.mark.asyncio
async def test_a_server_that_is_killed_is_reported_and_waited_for() -> None:
    try:
        with serving() as server:
            store = server.create()
            async with following(store) as (served, consumer):
                for _ in range(3):
                    await asyncio.to_thread(server.kill)
                    await cause_reported(consumer, "the server cannot be reached")
                    await asyncio.to_thread(server.start)
                    async with asyncio.timeout(DEADLINE_S):
                        while consumer.health().state is not ConsumerState.RUNNING:
                            await asyncio.sleep(0.02)
                await recovered(served, consumer, store)
    except Missing as missing:
        pytest.skip(str(missing))


@contextlib.asynccontextmanager
async def didcomm(store: str, intake: IntakeSettings) -> AsyncIterator[str]:
    options = {"listen": "http://127.0.0.1:0/dc", "protocols": [{"type": f"{PROTOCOL}/*"}]}
    listener = DidcommListener(read_didcomm(options, "outage"))
    settings = ConsumerSettings(intake=intake)
    async with Receiver("outage", listener, SqlStore(store), settings) as receiver:
        await receiver.aligned(DEADLINE_S)
        yield listener.address


@pytest.mark.timeout(240)
@pytest.mark.asyncio
async def test_a_message_is_refused_with_the_reason_while_the_server_is_away() -> None:
    quick = {"answer_within_s": 2.0}
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(serving())
        except Missing as missing:
            pytest.skip(str(missing))
        async with (
            didcomm(server.create(), IntakeSettings(answer_within_s=2.0)) as url,
            rm_kit.running(server.create(), intake=quick) as wsrm,
            wsr_kit.running(server.create(), intake=quick) as wsr,
            aiohttp.ClientSession() as session,
        ):
            sequence = await wsrm.create()
            await asyncio.to_thread(server.stop)
            media = {"Content-Type": "application/didcomm-plain+json"}
            asked: list[Awaitable[Any]] = [
                session.post(url, data=message(1, 1, 1), headers=media),
                wsrm.say(rm_kit.sequence(sequence, 1), rm_kit.message(1)),
                wsrm.say(body=rm_kit.create()),
                wsr.send(0),
            ]
            answers = await asyncio.gather(*asked)
            texts = [await answers[0].text(), *(one.raw.decode() for one in answers[1:])]
        assert [one.status for one in answers] == [503, 503, 500, 503]
        for text in texts:
            assert "the store is unavailable" in text
