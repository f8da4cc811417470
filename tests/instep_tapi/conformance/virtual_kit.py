"""A provider and a client that reads it, in virtual time: hours of a trace in a tenth of a second.

The provider is that of the kit, with its real logs, readers, records and answers; only the sockets
and the clock are missing.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec

from instep.conformance import (
    ConnectionClosed,
    ConnectionOpened,
    Event,
    MessageReceived,
    ResponseReceived,
)
from instep_tapi.facts.names import StreamState
from instep_tapi_provider import Context, Faults, Provider, ProviderSettings, ScaledClock, Stream
from instep_tapi_provider.log_reader import LogReader
from instep_tapi_provider.network.discovery import stream_context
from instep_tapi_provider.network.site import Site
from instep_tapi_provider.topology import topology_context

NETWORK = "/restconf/data/tapi-common:context"
STREAMS = f"{NETWORK}/tapi-streaming:stream-context"
MINUTE_S, HOUR_S = 60.0, 3_600.0
_BEGAN_S = 1_800_000_000.0


@cache
def _backbone(tapi: str) -> bytes:
    return msgspec.json.encode(topology_context("sndlib/polska", services=2, tapi=tapi).root)


def context(tapi: str = "2.1.3") -> Context:
    """A small backbone, each time a new one."""
    return Context(msgspec.json.decode(_backbone(tapi)))


@dataclass
class Connection:
    """A connection to one stream."""

    id: int
    stream: Stream
    reader: LogReader
    sent: int = 0


@dataclass
class World:
    """The provider, what happens in its network, and the trace of a client."""

    settings: ProviderSettings
    seed: int = 0
    faults: Faults = field(default_factory=Faults)
    tapi: str = "2.1.3"
    trace: list[Event] = field(default_factory=list)
    realigned: int = 0
    """How often the provider has taken tokens for too old."""

    def __post_init__(self) -> None:
        self.now_s = _BEGAN_S
        clock = ScaledClock(1.0, now=lambda: self.now_s)
        self.rng = random.Random(self.seed)
        self.provider = Provider(
            context(self.tapi),
            self.settings,
            faults=self.faults,
            clock=clock,
        )
        for stream in self.provider.streams:
            stream.state = StreamState.ACTIVE
        self.site = Site(
            self.settings,
            self.provider.context,
            self.provider.operator,
            self.provider.streams,
            self.faults,
            clock.now,
            self.provider.rng,
        )
        self.connections: dict[str, Connection] = {}
        self.tokens: dict[str, str] = {}
        self.old_tokens: dict[str, str] = {}
        self._count = 0
        self.provider.raise_alarms(10)

    # -- time and the network ----------------------------------------------------------------------

    @property
    def now_us(self) -> int:
        return int(self.now_s * 1e6)

    def pass_time(self, seconds: float, *, changes: int = 1, step_s: float = 10.0) -> None:
        """Let time pass; in each step so many changes happen, and connections are read."""
        until = self.now_s + seconds
        while self.now_s < until:
            self.now_s += step_s
            for _ in range(changes):
                self.change()
            for stream in self.provider.streams:
                stream.log.clean()
            self.read()

    def change(self) -> None:
        """One thing happens in the network."""
        rng, provider = self.rng, self.provider
        alarms = list(provider.operator.alarms)
        chance = rng.random()
        if chance < 0.2 and alarms:
            provider.clear_alarm(rng.choice(alarms), tombstone_only=rng.random() < 0.2)
        elif chance < 0.5:
            provider.raise_alarms(1)
        elif chance < 0.6 and alarms:
            provider.operator.change_alarm(rng.choice(alarms), acknowledged=True)
        elif chance < 0.62:
            self.replace_link()
        else:
            stateful = [
                key
                for key, node in provider.context.nodes.items()
                if "operational-state" in node.value
            ]
            state = rng.choice(("ENABLED", "DISABLED"))
            provider.update(rng.choice(stateful), {"operational-state": state})

    def replace_link(self) -> None:
        """A link is taken down, and another one comes."""
        nodes = self.provider.context.nodes
        links = [node for node in nodes.values() if node.cls == "LINK"]
        link = self.rng.choice(links)
        parent = link.parent
        assert parent is not None
        value = {**link.value, "uuid": f"link-{self.rng.getrandbits(48):012x}"}
        self.provider.delete(link.key)
        self.provider.create(parent.key, "link", value)

    # -- the client --------------------------------------------------------------------------------

    def get(self) -> None:
        """Read current state."""
        body = msgspec.json.encode({"tapi-common:context": self.provider.context.root})
        self.trace.append(ResponseReceived(self.now_us, NETWORK, 200, body))

    def get_streams(self) -> None:
        """Read the stream context."""
        shown = stream_context(self.site, "ws://127.0.0.1:1/restconf")
        body = msgspec.json.encode({"tapi-streaming:stream-context": shown})
        self.trace.append(ResponseReceived(self.now_us, STREAMS, 200, body))

    def open(self, *, start: str | None = None, resume: bool = True) -> None:
        """Connect to each stream: behind its last token, with this one, or without any."""
        for stream in self.provider.streams:
            token = start if start is not None else self.tokens.get(stream.stream_id, "")
            if not resume:
                token = ""
            self._count += 1
            reader = LogReader(stream, token or None, self.faults, self.now_s)
            self.connections[stream.stream_id] = Connection(self._count, stream, reader)
            self.trace.append(ConnectionOpened(self.now_us, self._count, stream.uuid, token))

    def open_old(self) -> None:
        """Connect with the token of a record that is older than the tombstone retention."""
        self.tokens.update(self.old_tokens)
        self.open()

    def close(self) -> None:
        """Close all connections."""
        for connection in self.connections.values():
            self.trace.append(ConnectionClosed(self.now_us, connection.id, by_us=True))
        self.connections.clear()

    def drop(self, connection: Connection) -> None:
        """The provider closes one."""
        self.trace.append(ConnectionClosed(self.now_us, connection.id, "dropped"))
        del self.connections[connection.stream.stream_id]

    def read(self) -> None:
        """Read what there is, and be dropped where that is due."""
        deviation = self.faults.deviation
        for connection in list(self.connections.values()):
            stream = connection.stream
            paused = stream.state is not StreamState.ACTIVE
            if paused and not (deviation and deviation.sends_paused):
                continue
            for _ in range(100):
                if connection.reader.lost():
                    self.drop(connection)
                    break
                before = connection.reader.position
                records = connection.reader.read()
                if not records and before == connection.reader.position:
                    break
                if not self._take(connection, list(records)):
                    break

    def _take(self, connection: Connection, records: list[Any]) -> bool:
        """Take records into the trace; whether the connection goes on."""
        stream, faults = connection.stream, self.faults
        for record in records:
            copies = 1
            connection.sent += 1
            if faults.duplicate_every and connection.sent % faults.duplicate_every == 0:
                copies = 2
            for frame in stream.encoder.frames([record.data] * copies, self.now_s):
                self.trace.append(MessageReceived(self.now_us, connection.id, frame))
            self.tokens[stream.stream_id] = _token(record.data) or record.token
            retention_s = stream.settings.tombstone_retention_s
            if self.now_s - record.appended_s > retention_s * 1.3:
                self.old_tokens[stream.stream_id] = record.token
            limit = faults.drop_after_records
            if limit is not None and connection.sent >= limit:
                self.drop(connection)
                return False
        return True


def _token(data: bytes) -> str:
    try:
        header = msgspec.json.decode(data)["log-record-header"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return ""
    return str(header.get("token", ""))


def usual_life(world: World) -> None:
    """What a client sees that goes through all that the rules are about."""
    world.pass_time(9 * HOUR_S, changes=1, step_s=5 * MINUTE_S)
    world.get()
    world.get_streams()
    world.open()
    world.read()
    world.pass_time(20 * MINUTE_S, changes=2)
    for _ in range(4):
        world.close()
        world.pass_time(2 * MINUTE_S)
        world.get_streams()
        world.open()
        world.pass_time(3 * MINUTE_S)
    world.replace_link()
    world.pass_time(5 * MINUTE_S)
    world.get_streams()
    for stream in world.provider.streams:
        stream.state = StreamState.PAUSED
    for _ in range(6):
        world.get_streams()
        world.pass_time(MINUTE_S)
    for stream in world.provider.streams:
        stream.state = StreamState.ACTIVE
    world.get_streams()
    world.pass_time(HOUR_S, changes=1, step_s=MINUTE_S)
    world.close()
    world.open_old()
    world.pass_time(2 * MINUTE_S)
    world.close()
    world.open(resume=False)
    world.pass_time(40 * MINUTE_S, step_s=MINUTE_S)
    world.close()
    world.pass_time(MINUTE_S)
    world.open(resume=False)
    world.pass_time(2 * MINUTE_S)
    world.get()
    world.get_streams()
