"""A real WS-RM source, gSOAP's, over a way that loses, repeats and reorders."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from lxml import etree
from yarl import URL

from tests.instep_wsrm.gsoap_kit import build
from tests.instep_wsrm.rm_kit import running

COUNT = 40


class Link:
    """A way to the destination: one request a connection."""

    def __init__(self, target: str, faults: float, seed: int) -> None:
        self.happened: Counter[str] = Counter()
        self._url = URL(target)
        self._faults = faults
        self._rng = random.Random(seed)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line.split(b":")[1])
                for line in head.lower().split(b"\r\n")
                if line.startswith(b"content-length")
            )
            request = head + await reader.readexactly(length)
            what = self._rng.choices(
                ["arrives", "lost", "answer lost", "repeated"],
                [1 - 3 * self._faults, *[self._faults] * 3],
            )[0]
            self.happened[what] += 1
            if what == "lost":
                return
            answer = await self._forward(request)
            if what == "repeated":
                answer = await self._forward(request)
            if what != "answer lost":
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _forward(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(self._url.host, self._url.port)
        writer.write(request)
        answer = await reader.read()
        writer.close()
        return answer


@asynccontextmanager
async def linked(target: str, faults: float, seed: int) -> AsyncIterator[tuple[str, Link]]:
    link = Link(target, faults, seed)
    server = await asyncio.start_server(link.connected, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/rm", link


@pytest.fixture(scope="module", params=["1.0", "1.1"])
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("gsoap"), request.param)


@pytest.mark.asyncio
@pytest.mark.parametrize("faults", [0.0, 0.1])
async def test_all_is_acknowledged_and_delivered_once_in_order(source: Path, faults: float) -> None:
    seed = random.randrange(10_000)
    print(f"seed {seed}")
    async with running() as site, linked(site.url, faults, seed) as (url, link):
        process = await asyncio.create_subprocess_exec(
            str(source), url, str(COUNT), stdout=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(100):
            out, _ = await process.communicate()
        assert process.returncode == 0, link.happened
        name, *ended = out.decode().split()
        delivered = await site.delivered(name)
        assert [one.number for one in delivered] == list(range(1, COUNT + 1))
        for one in delivered:
            assert etree.fromstring(one.body).findtext("index") == str(one.number)
        assert sum(link.happened.values()) > COUNT
        if not faults:
            assert ended == ["ended"]
        else:
            assert set(link.happened) & {"lost", "answer lost", "repeated"}
