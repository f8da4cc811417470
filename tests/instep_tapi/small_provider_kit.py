"""A provider of a few records: what it says on the wire is written out, frame by frame."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from instep import Consumer, ConsumerSettings
from instep.alignment.settings import AlignmentSettings
from instep.ports.sink import Sink
from instep_tapi.source import TapiSource
from tests.instep_tapi.hostile_kit import CONTAINER, DEADLINE_S, Peer, frame, hostile, source_of
from tests.instep_tapi.hostile_kit import streams as stream_context

__all__ = [
    "DEADLINE_S",
    "SmallProvider",
    "aligned_again",
    "context_of",
    "node",
    "running",
    "second_now",
    "serving",
    "stated",
    "until",
]

CONTEXT = "/restconf/data/tapi-common:context"
SETTINGS = ConsumerSettings(
    alignment=AlignmentSettings(quiet_s=0.2, unreached_quiet_s=0.4, empty_confirm_s=0.6),
    poll_state_s=0.1,
    reconnect_initial_s=0.02,
    healthy_after_s=0.01,
)

_BEGAN = datetime.now(UTC) - timedelta(minutes=5)


def second_now() -> float:
    """Now, as `stated` counts seconds."""
    return (datetime.now(UTC) - _BEGAN).total_seconds()


_TOKEN = re.compile(rb'"token": ?"([^"]*)"')
_CLOSE, _PING, _PONG = 8, 9, 10


def stated(
    number: int,
    key: str,
    entity_class: str = "",
    entity: Any = None,
    kind: str = "CREATE_UPDATE",
    parent: Any = None,
    *,
    second: float | None = None,
    log: str = "t",
    **changes: Any,
) -> bytes:
    """The log-record with this number, for its token and its offset, as TR-548 3.10 has it. It was
    appended so many seconds (if not said, its number) after a moment ago. A change of its header to
    None leaves a member out.
    """
    appended_at = _BEGAN + timedelta(seconds=number if second is None else second)
    at = appended_at.isoformat().replace("+00:00", "Z")
    header: dict[str, Any] = {
        "token": f"{log}{number}",
        "log-append-time-stamp": at,
        "entity-key": key,
        "record-type": f"RECORD_TYPE_{kind}",
        "full-log-record-offset-id": [
            {"value-name": "partition", "value": "0"},
            {"value-name": "offset", "value": str(number)},
        ],
        **changes,
    }
    record: dict[str, Any] = {
        "log-record-header": {name: value for name, value in header.items() if value is not None}
    }
    if entity_class:
        body: dict[str, Any] = {
            "event-time-stamp": {"primary-time-stamp": at},
            "record-content": entity_class,
        }
        if entity is not None:
            body[entity_class.lower().replace("_", "-")] = entity
        if parent is not None:
            body["parent-address"] = parent
        record["log-record-body"] = body
    return json.dumps(record, separators=(",", ":")).encode()


def node(name: str, offset: int, second: float = 0, log: str = "t", **changes: Any) -> bytes:
    """A log-record of a NODE; see `stated`."""
    entity = {"uuid": name, "log": log}
    return stated(offset, name, "NODE", entity, parent=[], second=second, log=log, **changes)


def context_of(members: Mapping[str, Any]) -> bytes:
    """What a GET of the context answers."""
    return json.dumps({"tapi-common:context": members}).encode()


class SmallProvider:
    """One stream of these classes. Each connection gets `log` from the token on that it names, or
    all of it where the log does not have that, and what is added later. A log that is replaced is
    served to later connections.
    """

    def __init__(
        self,
        *classes: str,
        log: Sequence[bytes] = (),
        storage: str = "TRUNCATED",
        records: str = "WHOLE_ENTITY_ON_CHANGE",
    ) -> None:
        self.log = list(log)
        self.context = b"{}"
        self.status = "200 OK"
        self.resources: dict[str, bytes] = {}
        """What it answers of the resources below the context, which it else has not."""
        self.streams_status = "200 OK"
        """The status with which it answers what streams there are."""
        self.refuses_latest = ""
        """The status with which it refuses `start_from=latest`; empty: it does not."""
        self.opened_at: list[str] = []
        self.stream: dict[str, Any] = {}
        """What it says of the stream otherwise than usual …"""
        self.kind: dict[str, Any] = {}
        """… and of the type of the stream."""
        self.path = "/s"
        """Where the stream is."""
        self.single: Callable[[str], Awaitable[tuple[bytes, str]]] | None = None
        """Answers a GET of one NODE; None: none is shown."""
        self.singles: list[str] = []
        self.readings = 0
        self._declared = {
            "record-content": list(classes),
            "log-storage-strategy": storage,
            "log-record-strategy": records,
        }
        self._peers: list[Peer] = []

    def streams(self, address: str) -> dict[str, Any]:
        found = stream_context(address, **self.stream)
        (kind,) = found["supported-stream-type"]
        kind |= self._declared
        if kind["log-storage-strategy"] != "COMPACTED":
            del kind["compacted-log-details"]
            kind["record-retention"] = "100000 bytes"
        kind |= self.kind
        return found

    async def serve(self, peer: Peer) -> None:
        if "Upgrade" in peer.headers:
            if peer.target.partition("?")[0] == self.path:
                await self._serve_stream(peer)
            else:
                await peer.answer(b"", status="404 Not Found")
        elif peer.target.startswith(CONTAINER):
            streams = self.streams(f"ws://{peer.headers['Host']}{self.path}")
            await peer.answer(json.dumps(streams).encode(), status=self.streams_status)
        elif peer.target == CONTEXT:
            self.readings += 1
            await peer.answer(self.context, status=self.status)
        elif (name := peer.target.removeprefix(f"{CONTEXT}/")) in self.resources:
            await peer.answer(self.resources[name])
        elif self.single is not None and "/node=" in peer.target:
            name = peer.target.rpartition("=")[2]
            self.singles.append(name)
            body, status = await self.single(name)
            await peer.answer(body, status=status)
        else:
            await peer.answer(b"", status="404 Not Found")

    async def _serve_stream(self, peer: Peer) -> None:
        start = peer.target.partition("start_from=")[2] or "oldest"
        self.opened_at.append(start)
        if start == "latest" and self.refuses_latest:
            await peer.answer(b"", status=self.refuses_latest)
            return
        await peer.upgrade()
        self._peers.append(peer)
        sending = asyncio.create_task(self._send(peer, start))
        try:
            async for opcode, data in peer.frames_of_client():
                if opcode == _PING:
                    await peer.send(frame(data, _PONG))
                elif opcode == _CLOSE:
                    await peer.send(frame(data, _CLOSE))
                    break
        finally:
            self._peers.remove(peer)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def _send(self, peer: Peer, start: str) -> None:
        log = self.log
        tokens = [found[1].decode() if (found := _TOKEN.search(one)) else None for one in log]
        sent = len(log) if start == "latest" else 0
        if start in tokens:
            sent = tokens.index(start) + 1
        while True:
            if pending := log[sent:]:
                sent += len(pending)
                await peer.send(b"".join(map(frame, pending)))
            await asyncio.sleep(0.02)

    def say(self, *frames: bytes) -> None:
        """Send these to whoever is connected, and to who comes later."""
        self.log += frames

    def cut(self) -> None:
        """Cut the connections."""
        for peer in self._peers:
            peer.writer.transport.abort()

    def shows(self, *names: str, bad: bytes = b"") -> None:
        """Let the context show these NODEs; `bad` is a further one, written out."""
        nodes = [json.dumps({"uuid": name}).encode() for name in names]
        nodes += [bad] if bad else []
        self.context = (
            b'{"tapi-common:context":{"tapi-topology:topology-context":{"topology":[{"uuid":"t",'
            b'"node":[%b]}]}}}' % b",".join(nodes)
        )


@asynccontextmanager
async def serving(provider: SmallProvider, **options: Any) -> AsyncIterator[TapiSource]:
    async with hostile(provider.serve) as url, source_of(url, **options) as source:
        yield source


@asynccontextmanager
async def running(
    provider: SmallProvider, sink: Sink, settings: ConsumerSettings = SETTINGS
) -> AsyncIterator[Consumer]:
    """A consumer of the provider, aligned."""
    async with (
        serving(provider) as source,
        Consumer("c", source, sink, settings) as consumer,
        asyncio.timeout(4 * DEADLINE_S),
    ):
        await consumer.aligned()
        yield consumer


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.02)


async def aligned_again(consumer: Consumer, attempt: int) -> None:
    """Until this attempt, or a later one, is aligned."""
    await until(
        lambda: consumer.health().streams[0].attempt >= attempt and consumer.health().aligned
    )
