"""A provider of a few records: what it says on the wire is written out, frame by frame."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from instep import Consumer, ConsumerSettings
from instep.alignment.settings import AlignmentSettings
from instep.ports.sink import Sink
from instep_tapi.source import TapiSource
from tests.instep_tapi.hostile_kit import CONTAINER, DEADLINE_S, Peer, frame, hostile, source_of
from tests.instep_tapi.hostile_kit import streams as stream_context

__all__ = ["DEADLINE_S", "SmallProvider", "aligned_again", "node", "running", "serving", "until"]

CONTEXT = "/restconf/data/tapi-common:context"
SETTINGS = ConsumerSettings(
    alignment=AlignmentSettings(quiet_s=0.2, unreached_quiet_s=0.4, empty_confirm_s=0.6),
    poll_state_s=0.1,
    reconnect_initial_s=0.02,
    healthy_after_s=0.01,
)

_BEGAN = datetime.now(UTC) - timedelta(minutes=5)


def node(name: str, offset: int, second: int = 0, log: str = "t", **changes: Any) -> bytes:
    """A log-record of a NODE, as TR-548 3.10 has it, appended so many seconds after a moment ago; a
    change to None leaves a member out.
    """
    header: dict[str, Any] = {
        "token": f"{log}{offset}",
        "log-append-time-stamp": (_BEGAN + timedelta(seconds=second)).isoformat(),
        "entity-key": name,
        "record-type": "RECORD_TYPE_CREATE_UPDATE",
        "full-log-record-offset-id": [
            {"value-name": "partition", "value": "0"},
            {"value-name": "offset", "value": str(offset)},
        ],
        **changes,
    }
    body = {
        "event-time-stamp": {"primary-time-stamp": "2026-11-26T10:00:00.000Z"},
        "record-content": "NODE",
        "parent-address": [],
        "node": {"uuid": name, "log": log},
    }
    stated = {member: value for member, value in header.items() if value is not None}
    return json.dumps({"log-record-header": stated, "log-record-body": body}).encode()


class SmallProvider:
    """One stream of NODEs. `log` is sent to each connection that has no token, all of it; `frames`
    is what comes then. Each connection gets what is said later, too.
    """

    def __init__(self, log: Sequence[bytes] = (), *, truncated: bool = False) -> None:
        self.log = list(log)
        self.context = b"{}"
        self.status = "200 OK"
        self.knows: Callable[[str], bool] = lambda _token: True
        self.connections = 0
        self.readings = 0
        self._truncated = truncated
        self._peers: list[Peer] = []

    def streams(self, address: str) -> dict[str, Any]:
        found = stream_context(address)
        (kind,) = found["supported-stream-type"]
        kind["record-content"] = ["NODE"]
        if self._truncated:
            del kind["compacted-log-details"]
            kind["log-storage-strategy"] = "TRUNCATED"
            kind["record-retention"] = "100000 bytes"
        return found

    async def serve(self, peer: Peer) -> None:
        if "Upgrade" in peer.headers:
            self.connections += 1
            await peer.upgrade()
            token = peer.target.partition("start_from=")[2]
            if token != "latest" and not (token and self.knows(token)):
                await peer.send(b"".join(map(frame, self.log)))
            self._peers.append(peer)
            async for opcode, data in peer.frames_of_client():
                if opcode == 9:
                    await peer.send(frame(data, 10))
        elif peer.target.startswith(CONTAINER):
            await peer.answer(json.dumps(self.streams(f"ws://{peer.headers['Host']}/s")).encode())
        elif peer.target == CONTEXT:
            self.readings += 1
            await peer.answer(self.context, status=self.status)
        else:
            await peer.answer(b"", status="404 Not Found")

    async def say(self, *frames: bytes) -> None:
        """Send these to whoever is connected."""
        await self._peers[-1].send(b"".join(map(frame, frames)))

    async def cut(self) -> None:
        """Cut the connection."""
        self._peers.pop().writer.transport.abort()

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
