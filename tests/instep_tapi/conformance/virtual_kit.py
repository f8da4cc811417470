"""A provider and a client that reads it, in virtual time: hours of a trace in a tenth of a second.

The provider is that of the kit, with its real logs, readers, records and answers; only the sockets
and the clock are missing.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import msgspec

from instep.conformance import (
    ConnectionClosed,
    ConnectionOpened,
    ConnectionRefused,
    Event,
    MessageReceived,
    PongSent,
    PongsWithheld,
    ReadingPaused,
    ReadingResumed,
    ResponseReceived,
)
from instep_tapi.facts.names import StreamState
from instep_tapi_provider import Context, Faults, Provider, ProviderSettings, ScaledClock, Stream
from instep_tapi_provider.deviations import CONFORMING, Deviation
from instep_tapi_provider.log_reader import LogReader
from instep_tapi_provider.network.discovery import stream_context
from instep_tapi_provider.network.site import Site
from instep_tapi_provider.topology import topology_context

NETWORK = "/restconf/data/tapi-common:context"
STREAMS = f"{NETWORK}/tapi-streaming:stream-context"
MINUTE_S, HOUR_S = 60.0, 3_600.0
_BEGAN_S = 1_800_000_000.0
_PONG_S = 15.0


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
    pong_s: float
    """When the client sent its last Pong."""
    sent_s: float
    """When the provider sent something."""
    sent: int = 0
    withholds: bool = False
    """Whether the client sends no Pong."""
    slow_since_s: float | None = None
    """Since when the client reads nothing."""
    dropped: bool = False
    """Whether the provider has ended it, and the client does not know yet."""

    @property
    def waits(self) -> bool:
        """Whether the provider has something that a slow client does not take."""
        return self.slow_since_s is not None and (
            self.reader.position < self.reader.log.next_ordinal
        )


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
            log_ids=partial(random.Random(self.seed).getrandbits, 62),
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
        """Of the client, by stream."""
        self.second: dict[str, Connection] = {}
        """Of another client."""
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
        self.read()
        while self.now_s < until:
            self.now_s += step_s
            for _ in range(changes):
                self.change()
            for stream in self.provider.streams:
                stream.log.clean()
            for connection in self.all_connections:
                self._idle(connection)
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

    @property
    def deviation(self) -> Deviation:
        return self.faults.deviation or CONFORMING

    @property
    def all_connections(self) -> list[Connection]:
        """All that are open, of both clients."""
        return [*self.connections.values(), *self.second.values()]

    def open(self, *, start: str | None = None, resume: bool = True, second: bool = False) -> None:
        """Connect to each stream: behind its last token, with this one, or without any. `second`:
        the other client does so.
        """
        for stream in self.provider.streams:
            token = start if start is not None else self.tokens.get(stream.stream_id, "")
            if not resume:
                token = ""
            if not self._open(stream, token, second=second) and token:
                self._open(stream, "", second=second)

    def _open(self, stream: Stream, token: str, *, second: bool) -> bool:
        others = [one for one in self.all_connections if one.stream is stream]
        if status := self.deviation.refusal(token, len(others)):
            self.trace.append(ConnectionRefused(self.now_us, stream.uuid, token, status))
            return False
        if self.deviation.displaces:
            for other in others:
                self.drop(other, self.now_s + 1e-3)
        self._count += 1
        reader = LogReader(stream, token or None, self.faults, self.now_s)
        opened = Connection(self._count, stream, reader, self.now_s, self.now_s)
        (self.second if second else self.connections)[stream.stream_id] = opened
        asked_us, opened_us = self.now_us, self.now_us + 2_000
        self.trace.append(ConnectionOpened(opened_us, self._count, stream.uuid, token, asked_us))
        return True

    def open_old(self) -> None:
        """Connect with the token of a record that is older than the tombstone retention."""
        self.tokens.update(self.old_tokens)
        self.open()

    def close(self, *, second: bool = False) -> None:
        """Close all connections of a client."""
        mine = self.second if second else self.connections
        for connection in mine.values():
            self.trace.append(ConnectionClosed(self.now_us, connection.id, by_us=True))
        mine.clear()

    def drop(self, connection: Connection, at_s: float | None = None) -> None:
        """The provider closes one."""
        at_us = self.now_us if at_s is None else int(at_s * 1e6)
        self.trace.append(ConnectionClosed(at_us, connection.id, "dropped"))
        for of_client in (self.connections, self.second):
            if of_client.get(connection.stream.stream_id) is connection:
                del of_client[connection.stream.stream_id]

    def withhold_pongs(self) -> None:
        """The second client sends no Pong from now on."""
        for connection in self.second.values():
            connection.withholds = True
            self.trace.append(PongsWithheld(self.now_us, connection.id))

    def pause(self) -> None:
        """The client reads nothing from now on."""
        for connection in self.connections.values():
            connection.slow_since_s = self.now_s
            self.trace.append(ReadingPaused(self.now_us, connection.id))

    def resume(self) -> None:
        """The client reads on."""
        for connection in list(self.connections.values()):
            if connection.slow_since_s is None:
                continue
            queue = self.deviation.queue_records
            if queue is not None and connection.waits:
                connection.reader.overflow(queue)
            connection.slow_since_s = None
            self.trace.append(ReadingResumed(self.now_us, connection.id))
            if connection.dropped:
                self.drop(connection)
        self.read()

    def _idle(self, connection: Connection) -> None:
        """What happens on a connection without a record: Pongs, and its end for lack of them."""
        deviation = self.deviation
        ends_s = connection.sent_s + deviation.idle_s
        if connection.withholds and deviation.waits_for_pongs:
            ends_s = min(ends_s, connection.pong_s + self.settings.pong_timeout_s)
        while not connection.withholds and connection.pong_s + _PONG_S <= min(ends_s, self.now_s):
            connection.pong_s += _PONG_S
            self.trace.append(PongSent(int(connection.pong_s * 1e6), connection.id))
        if connection.slow_since_s is not None:
            slow_s = self.now_s - connection.slow_since_s
            too_slow = connection.waits and slow_s > deviation.slow_s
            connection.dropped = connection.dropped or too_slow or connection.reader.lost()
        elif ends_s <= self.now_s:
            self.drop(connection, ends_s)

    def read(self) -> None:
        """Read what there is, and be dropped where that is due."""
        deviation = self.deviation
        for connection in self.all_connections:
            stream = connection.stream
            paused = stream.state is not StreamState.ACTIVE
            if paused and not deviation.sends_paused:
                continue
            together = self.all_connections if deviation.serves_together else [connection]
            if any(one.waits for one in together if one.stream is stream):
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
            connection.sent_s = self.now_s
            if faults.duplicate_every and connection.sent % faults.duplicate_every == 0:
                copies = 2
            for frame in stream.encoder.frames([record.data] * copies, self.now_s):
                self.trace.append(MessageReceived(self.now_us, connection.id, frame))
            if connection is self.connections.get(stream.stream_id):
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


def crowded_life(world: World) -> None:
    """What two clients see, one of which is idle, slow, and silent at times."""
    world.pass_time(9 * HOUR_S, changes=1, step_s=5 * MINUTE_S)
    world.get_streams()
    world.open()
    world.read()
    for _ in range(4):
        world.pass_time(2 * MINUTE_S)
        world.pass_time(50.0, changes=0)
        world.get_streams()
        world.close()
        world.open()
    world.pass_time(2 * MINUTE_S)
    for _ in range(2):
        world.open(second=True, resume=False)
        world.pass_time(MINUTE_S)
        world.close(second=True)
    if not world.connections:
        world.open()
    world.pass_time(MINUTE_S)
    world.open(second=True, resume=False)
    for _ in range(4):
        world.pass_time(20.0, step_s=1.0)
        world.pause()
        world.pass_time(MINUTE_S, step_s=1.0)
        world.resume()
        if not world.connections:
            world.open()
    world.pass_time(MINUTE_S)
    world.pause()
    world.pass_time(5 * HOUR_S, step_s=5 * MINUTE_S)
    world.resume()
    if not world.connections:
        world.open()
    world.pass_time(2 * MINUTE_S)
    world.withhold_pongs()
    world.pass_time(2 * MINUTE_S, changes=0, step_s=30.0)
    world.get_streams()
