"""A task that a source leaves is found however it was made; tasks of its peer are not blamed."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from typing import Any

import pytest

from instep import Record, RecordType, StreamInfo, TokenRefusedError
from instep.model import RecordChunk, Start
from instep.ports import Feed, Source
from instep.testing import SOURCE_PROMISES, BrokenPromiseError, ScriptedSource, check_source
from instep.testing.scripted_source import log_script
from tests.instep.scripted_source_kit import info, record

pytestmark = pytest.mark.asyncio

CLOSING = "closing-twice-is-no-error"
UPDATE, DELETE, TOMBSTONE, _ = RecordType
LOG = [("a", UPDATE, {"is": 1}), ("b", UPDATE, {"is": 2}), ("b", DELETE, None), ("c", UPDATE, {})]


class Peer:
    """Sends its log from the place that it is asked for, then waits for new lines."""

    def __init__(self) -> None:
        self._ended = asyncio.Event()
        self._serving: set[asyncio.Task[Any]] = set()

    async def serve_lines(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        with suppress(OSError, ValueError):
            start = int(await reader.readline())
            for number, (key, kind, body) in enumerate(LOG[start:], start + 1):
                line = {"key": key, "kind": kind, "number": number, "body": body}
                writer.write(json.dumps(line).encode() + b"\n")
            await self._ended.wait()
        writer.close()

    async def end(self) -> None:
        self._ended.set()
        await asyncio.sleep(0.01)  # what was accepted last
        await asyncio.gather(*self._serving)


@asynccontextmanager
async def peer() -> AsyncIterator[int]:
    """Its port. The tasks of its connections outlive these, as those of a careless server do."""
    serving = Peer()
    server = await asyncio.start_server(serving.serve_lines, "localhost", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await serving.end()


class LineFeed(Feed):
    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def receive(self) -> RecordChunk:
        line = json.loads(await self._reader.readline())
        number = line["number"]
        body = b"" if line["body"] is None else json.dumps(line["body"]).encode()
        kind = RecordType(line["kind"])
        return RecordChunk(
            [Record("lines", line["key"], kind, str(number), number, offset=number, body=body)]
        )


class LineSource(Source):
    """A source over TCP."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def discover(self) -> Sequence[StreamInfo]:
        return [StreamInfo(id="lines", origin="a peer", kind="lines")]

    @asynccontextmanager
    async def feed(self, stream: StreamInfo, start: str | Start) -> AsyncIterator[Feed]:
        places: dict[str | Start, str] = {Start.OLDEST: "0", Start.LATEST: str(len(LOG))}
        place = places.get(start, str(start))
        if not place.isdecimal():
            raise TokenRefusedError("no such place", where=stream.id)
        reader, writer = await asyncio.open_connection("localhost", self._port)
        try:
            writer.write(place.encode() + b"\n")
            yield LineFeed(reader)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def close(self) -> None:
        """Nothing is open between two feeds."""


@pytest.mark.parametrize("promise", SOURCE_PROMISES)
async def test_a_source_over_tcp_keeps_beside_its_peer(promise: str) -> None:
    async with peer() as port:
        await check_source(lambda: LineSource(port), least_records=len(LOG), only=promise)


async def test_a_leak_is_found_beside_the_tasks_of_the_peer() -> None:
    class Leaks(LineSource):
        async def discover(self) -> Sequence[StreamInfo]:
            self.prober = asyncio.create_task(forgotten())
            return await super().discover()

    async with peer() as port:
        with pytest.raises(BrokenPromiseError) as caught:
            await check_source(lambda: Leaks(port), least_records=len(LOG), only=CLOSING)
    await clean_up()
    [told] = [line for line in str(caught.value).split(": ") if "forgotten" in line]
    line = forgotten.__code__.co_firstlineno + 1
    assert told.startswith(f"forgotten at {__file__}:{line} (Task-")
    assert "serve_lines" not in told


async def forgotten() -> None:
    await asyncio.sleep(3600)  # Its timer holds the task, which could be collected otherwise.


async def clean_up() -> None:
    left = [one for one in asyncio.all_tasks() if "forgotten" in str(one.get_coro())]
    assert left
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


# -- ways to leave a task ----------------------------------------------------------------------


def start() -> None:
    asyncio.ensure_future(forgotten())  # noqa: RUF006 - it is forgotten


async def by_a_task() -> None:
    await asyncio.create_task(by_create())


async def by_create() -> None:
    start()


async def by_a_context_of_its_own() -> None:
    asyncio.get_running_loop().create_task(forgotten(), context=Context())


async def by_the_class() -> None:
    asyncio.Task(forgotten())


async def by_a_callback() -> None:
    asyncio.get_running_loop().call_soon(start)
    await asyncio.sleep(0)


async def by_a_timer() -> None:
    asyncio.get_running_loop().call_later(0, start)
    await asyncio.sleep(0.01)


async def by_a_done_callback() -> None:
    task = asyncio.create_task(asyncio.sleep(0))
    task.add_done_callback(lambda _: start())
    await asyncio.sleep(0.01)


async def by_a_protocol() -> None:
    class Starts(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            del data
            start()

    loop = asyncio.get_running_loop()

    def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    transport, _ = await loop.create_connection(Starts, "127.0.0.1", port)
    await asyncio.sleep(0.05)
    transport.close()
    server.close()


async def by_a_worker_thread() -> None:
    loop = asyncio.get_running_loop()
    await asyncio.to_thread(lambda: sent(loop))


async def by_the_threads_of_the_loop() -> None:
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, sent, loop)


async def by_threads_of_its_own() -> None:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as own:
        await loop.run_in_executor(own, sent, loop)


async def by_a_thread() -> None:
    loop = asyncio.get_running_loop()
    threading.Thread(target=sent, args=(loop,)).start()
    await asyncio.sleep(0.05)


async def by_a_thread_that_calls_back() -> None:
    loop = asyncio.get_running_loop()
    threading.Thread(target=loop.call_soon_threadsafe, args=(start,)).start()
    await asyncio.sleep(0.05)


def sent(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.run_coroutine_threadsafe(forgotten(), loop)


WAYS = [
    *(by_create, by_a_task, by_a_context_of_its_own, by_the_class, by_a_callback, by_a_timer),
    *(by_a_done_callback, by_a_protocol, by_a_worker_thread, by_the_threads_of_the_loop),
    *(by_threads_of_its_own, by_a_thread, by_a_thread_that_calls_back),
]


@pytest.mark.parametrize("way", WAYS)
async def test_a_task_that_is_left_is_found(way: Callable[[], Awaitable[None]]) -> None:
    class Leaks(ScriptedSource):
        async def discover(self) -> Sequence[StreamInfo]:
            await way()
            return await super().discover()

    # A thread of the loop that lived before.
    await asyncio.to_thread(int)
    script = log_script([record(n) for n in range(3)])
    with pytest.raises(
        BrokenPromiseError, match=r"still there: forgotten at .*test_task_leaks.py:"
    ):
        await check_source(lambda: Leaks(script, stream=info()), only=CLOSING)
    await clean_up()


async def test_what_was_there_before_and_the_loop_are_left_alone() -> None:
    loop = asyncio.get_running_loop()
    made: list[asyncio.Task[Any]] = []

    def own_factory(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
        made.append(asyncio.Task(coro, loop=loop, **options))
        return made[-1]

    loop.set_task_factory(own_factory)
    before = asyncio.create_task(forgotten())
    script = log_script([record(n) for n in range(3)])
    await check_source(lambda: ScriptedSource(script, stream=info()), only=CLOSING)
    assert loop.get_task_factory() is own_factory
    assert not {"call_soon_threadsafe", "run_in_executor"} & vars(loop).keys()
    assert before in made
    await clean_up()
