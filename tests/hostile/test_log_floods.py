"""What strangers send adds less to the log than they sent: a process of its own, a flood of each
kind of listener, and what its events and loggers print. A gap is asked for, and fails in the end:
that takes seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Self

import pytest

from tests.instep_didcomm.listener_kit import PLAIN, plain
from tests.instep_sdpi.provider_kit import providing
from tests.instep_wsr import wsr_kit
from tests.instep_wsrm import rm_kit

QUICK = "sequence = { gap_deadline_s = 0.3, gap_repeat_s = 0.3, gap_attempts = 3 }"
OPTIONS = {
    "didcomm": f'protocols = [{{ type = "https://didcomm.org/auction/1.0/*" }}]\n{QUICK}',
    "wsrm": QUICK,
    "wsr": "",
}


class Log:
    """Standard output and standard error of `instep run`, without the lines of health."""

    def __init__(self, folder: Path) -> None:
        self._files = [folder / "stdout", folder / "stderr"]

    def lines(self) -> list[bytes]:
        lines = [line for file in self._files for line in file.read_bytes().splitlines(True)]
        return [line for line in lines if b'"event":"health"' not in line]

    def size(self) -> int:
        return sum(map(len, self.lines()))

    def kinds(self) -> Counter[str]:
        kinds = Counter[str]()
        for line in self.lines():
            with suppress(json.JSONDecodeError):
                kinds[json.loads(line).get("event", "log")] += 1
        return kinds

    async def still(self, after: str, seconds: float = 1.5) -> int:
        """Wait until an event of this kind was told, and nothing more is; returns the size."""
        async with asyncio.timeout(60):
            while after and not self.kinds()[after]:
                await asyncio.sleep(0.2)
            size, since = self.size(), 0.0
            while since < seconds:
                await asyncio.sleep(0.25)
                since, size = (since + 0.25 if self.size() == size else 0.0), self.size()
        return size


@asynccontextmanager
async def run(folder: Path, source: str, isolation: str = "none") -> AsyncIterator[Log]:
    (folder / "instep.toml").write_text(
        f'isolation = "{isolation}"\n[[consumers]]\nname = "one"\n[consumers.source]\n{source}\n'
        f'[consumers.sink]\nkind = "sql"\nurl = "sqlite:///{folder}/one.db"\n'
    )
    command = ["-m", "instep.cli", "run", "instep.toml", "--format", "jsonl", "--period", "0.5"]
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            cwd=folder,
            env=os.environ | {"PYTHONASYNCIODEBUG": ""},
            stdout=out,
            stderr=errors,
        )
        try:
            yield Log(folder)
        finally:
            process.terminate()
            await asyncio.wait_for(process.wait(), 60)


class Peer:
    """One connection of a stranger, and how many bytes of bodies it has sent."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.sent_bytes = 0
        self.answers: Counter[int] = Counter()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def _close(self) -> None:
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].close()
            with suppress(ConnectionError):
                await streams[1].wait_closed()

    async def post(self, path: str, body: bytes, content_type: str) -> bytes:
        async with asyncio.timeout(60):
            while self._streams is None:
                with suppress(ConnectionError):
                    self._streams = await asyncio.open_connection("127.0.0.1", self._port)
                await asyncio.sleep(0.05)
        reader, writer = self._streams
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        self.sent_bytes += len(body)
        async with asyncio.timeout(60):
            answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(answer.partition("content-length: ")[2].split("\r\n")[0])
            content = await reader.readexactly(length)
        self.answers[int(answer.split()[1])] += 1
        if "connection: close" in answer:
            await self._close()
        return content


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


async def didcomm_gaps(peer: Peer, count: int) -> None:
    """The first message of a thread is missing, each time of another sender."""
    for number in range(count):
        body = (
            f'{{"id":"x{number}","type":"https://didcomm.org/auction/1.0/bid",'
            f'"from":"did:ex:s{number}","thid":"T","sender_order":2,"body":{{}}}}'
        )
        await peer.post("/in", body.encode(), PLAIN)


async def didcomm_others(peer: Peer, count: int) -> None:
    """Other content under a number, unreadable messages, envelopes for nobody."""
    for number in range(count):
        changed = plain(1, body={"n": number})
        await peer.post("/in", json.dumps(changed).encode(), PLAIN)
        for body in (b"{", b"[[", b'{"ciphertext":"x"}', b'{"id":"a"}', b'{"payload":1}', b"\xff"):
            await peer.post("/in", body, PLAIN)
        await peer.post("/in", b"x", "text/html")
        await peer.post("/else", b"x", PLAIN)


async def wsrm_gaps(peer: Peer, count: int) -> None:
    for _ in range(count):
        body = rm_kit.envelope("", rm_kit.create())
        answer = rm_kit.Answer(200, await peer.post("/in", body, "application/soap+xml"))
        headers = rm_kit.sequence(answer.text("Identifier"), 2)
        body = rm_kit.envelope(headers, "<o xmlns='urn:o'/>")
        await peer.post("/in", body, "application/soap+xml")


async def wsrm_others(peer: Peer, count: int) -> None:
    for number in range(count):
        unknown = rm_kit.envelope(rm_kit.sequence("u:x", 1), "<o/>")
        for body in (b"<", rm_kit.envelope("", "<x/>"), unknown):
            await peer.post("/in", body, "application/soap+xml")
        await peer.post(f"/{number}", b"<", "text/xml")


async def wsr_gaps(peer: Peer, count: int) -> None:
    """The first message of a group is missing, and the second one expires."""
    await peer.post("/in", b"<", "text/xml")
    for number in range(count):
        soon = wsr_kit.Clock().at(4)
        headers = wsr_kit.request(1, group=f"mid:{number}@s{number}.example", expires=soon)
        await peer.post("/in", wsr_kit.envelope(headers, "<o/>"), "text/xml")


async def wsr_others(peer: Peer, count: int) -> None:
    for number in range(count):
        for body in (b"<", wsr_kit.envelope("", "<x/>"), wsr_kit.envelope(wsr_kit.request(0))):
            await peer.post("/in", body, "text/xml")
        changed = wsr_kit.envelope(wsr_kit.request(0), f"<o>{number}</o>")
        await peer.post("/in", changed, "text/xml")


FLOODS = {
    "didcomm": (didcomm_gaps, 1_000, didcomm_others, "sequence-failed"),
    "wsrm": (wsrm_gaps, 100, wsrm_others, "sequence-failed"),
    "wsr": (wsr_gaps, 100, wsr_others, "fault"),
}


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("kind", "isolation"),
    [
        ("didcomm", "none"),
        ("wsr", "none"),
        pytest.param("wsrm", "none", marks=pytest.mark.long),
        pytest.param("didcomm", "process", marks=pytest.mark.long),
    ],
)
async def test_a_flood_adds_less_to_the_log_than_it_sends(
    tmp_path: Path, kind: str, isolation: str
) -> None:
    gaps, count, others, told = FLOODS[kind]
    port = free_port()
    source = f'kind = "{kind}"\nlisten = "http://127.0.0.1:{port}/in"\n{OPTIONS[kind]}'
    async with run(tmp_path, source, isolation) as log:
        async with Peer(port) as peer:
            await gaps(peer, count)
            await others(peer, 30)
        await log.still(told)
    kinds = log.kinds()
    assert log.size() < peer.sent_bytes, (kinds, log.lines()[:20])
    assert kinds["not-sent"] <= 1
    # Told, and counted: what was left out is told, too.
    assert 0 < kinds[told] < count
    left_out = [json.loads(line)["text"] for line in log.lines() if b'"left-out"' in line]
    assert any(f"more of {told} in the last" in text for text in left_out), left_out
    assert kinds["stopped"] == 1


@pytest.mark.asyncio
async def test_a_flood_at_the_address_of_reports_adds_less_to_the_log_than_it_sends(
    tmp_path: Path,
) -> None:
    """Whoever does not know the path of a subscription, and whoever does."""
    port = free_port()
    async with providing() as provider:
        source = (
            f'kind = "sdpi"\nprovider = "{provider.url}"\nlisten = "127.0.0.1:{port}"\n'
            'actions = ["EpisodicMetricReport"]'
        )
        async with run(tmp_path, source) as log:
            async with asyncio.timeout(60):
                while not log.kinds()["aligned"]:
                    await asyncio.sleep(0.1)
            before = await log.still("aligned", 0.5)
            async with Peer(port) as peer:
                for number in range(100):
                    for path in ("/", f"/{number:032x}"):
                        await peer.post(path, b"<", "application/soap+xml")
                        await peer.post(path, rm_kit.envelope("", "<x/>"), "application/soap+xml")
            assert await log.still("") - before <= peer.sent_bytes
            assert set(peer.answers) == {400, 404}
