"""What the rules of TR-548 are about: streams as declared, records as sent, readings of a log.

Only what is stated is read here, as it is stated: this reader forgives nothing, and shares nothing
with the decoder of the feeds but the tables of names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from instep.conformance import Evidence
from instep_tapi.facts.names import class_named, short_identity, strip_module
from instep_tapi.facts.stream_profile import TAPI_2_1_3
from instep_tapi.facts.times import duration_s

__all__ = [
    "ConnectionSeen",
    "DeclaredStream",
    "DeclaredType",
    "FrameSeen",
    "Log",
    "NetworkSeen",
    "Place",
    "QuietSeen",
    "Reading",
    "ReadingPause",
    "RecordSeen",
    "RefusalSeen",
    "ShownEntity",
    "StatedEntity",
    "StreamsSeen",
    "TypeSeen",
    "plain_members",
]

Object = Mapping[str, Any]
MAX_READ_RECORDS: Final = 20_000
"""Most records of one reading of a log that are remembered; of a longer one nothing is judged that
needs all of it.
"""
MAX_READINGS: Final = 8
"""Most readings of one log that are compared: the first, and the last ones."""
_BUFFERED_US: Final = 60_000_000
KEPT_BYTES: Final = 512
"""Of a record that is remembered for evidence."""


@dataclass(slots=True, eq=False)
class DeclaredType:
    """A supported-stream-type, its members without modules."""

    members: Object
    edition: str

    @property
    def uuid(self) -> str:
        return text_of(self.members.get("uuid"))

    @property
    def name(self) -> str:
        return text_of(self.members.get("stream-type-name")) or self.uuid

    @property
    def storage(self) -> str:
        return short_identity(text_of(self.members.get("log-storage-strategy")))

    @property
    def strategy(self) -> str:
        return short_identity(text_of(self.members.get("log-record-strategy")))

    @property
    def content_member(self) -> str:
        return "record-content" if self.edition == TAPI_2_1_3 else "stream-type-content"

    @property
    def classes(self) -> frozenset[str]:
        content = self.members.get("record-content") or self.members.get("stream-type-content")
        items = content if isinstance(content, list) else [content]
        return frozenset(class_named(one) for one in items if isinstance(one, str))

    @property
    def details(self) -> Object:
        found = self.members.get("compacted-log-details")
        return found if isinstance(found, dict) else {}

    @property
    def delay_s(self) -> float | None:
        return duration_s(self.details.get("compaction-delay"))

    @property
    def retention_s(self) -> float | None:
        return duration_s(self.details.get("tombstone-retention"))

    @property
    def compacts(self) -> bool:
        """Whether it declares a log that is compacted, with a delay below the retention: one whose
        compaction is emulated has both alike (3.19.3), and is fed from a snapshot first.
        """
        delay, retention = self.delay_s, self.retention_s
        return (
            self.storage == "COMPACTED"
            and delay is not None
            and retention is not None
            and delay < retention
        )

    @property
    def whole_for_s(self) -> float | None:
        """The age up to which the log has each record, superseded or not; None: it is not
        stated.
        """
        return self.delay_s if self.compacts else self.record_retention_s

    @property
    def place_kept_s(self) -> float | None:
        """The age up to which a reader's place in the log is kept; None: it is not stated."""
        return self.retention_s if self.compacts else self.record_retention_s

    @property
    def record_retention_s(self) -> float | None:
        return duration_s(self.members.get("record-retention"))


@dataclass(slots=True, eq=False)
class DeclaredStream:
    """An available-stream, its members without modules, and its type if that is listed."""

    members: Object
    type: DeclaredType | None
    edition: str
    reference: str = ""
    """The uuid of its type, as it is stated."""

    @property
    def uuid(self) -> str:
        return text_of(self.members.get("uuid"))

    @property
    def name(self) -> str:
        return text_of(self.members.get("stream-id")) or self.uuid

    @property
    def state(self) -> str:
        return short_identity(text_of(self.members.get("stream-state")))


@dataclass(slots=True, eq=False)
class StreamsSeen:
    """The stream context was read."""

    at_us: int
    edition: str
    streams: list[DeclaredStream]
    types: list[DeclaredType]
    changed: bool
    """Whether it says anything else than when it was read before."""
    evidence: Evidence
    stated: Object
    """It as it is stated."""


@dataclass(slots=True, eq=False)
class TypeSeen:
    """A supported-stream-type was stated, for the first time or otherwise than before."""

    at_us: int
    edition: str
    type: DeclaredType
    evidence: Evidence


class ReadingPause(NamedTuple):
    """We read nothing of a connection, from, until."""

    since_us: int
    until_us: int
    backed_up: bool
    """Whether its sender may have felt that."""

    def moved(self, by_us: int) -> ReadingPause:
        """The same by a clock that is ahead of ours."""
        return ReadingPause(self.since_us + by_us, self.until_us + by_us, self.backed_up)


@dataclass(slots=True, eq=False)
class ConnectionSeen:
    """A connection to a stream."""

    id: int
    stream: str
    start: str
    opened_us: int
    declared: DeclaredStream | None
    edition: str
    asked_us: int = 0
    """When we asked for it; 0: that is not known."""
    closed_us: int | None = None
    closed_by_peer: bool = False
    pauses: list[ReadingPause] = field(default_factory=list)
    """When we read nothing of it."""
    paused_us: int | None = None
    """Since when we read nothing."""
    withheld_us: int | None = None
    """Since when we send no Pong."""
    appended_us: int = 0
    """The latest append time of a record that it brought."""
    quiet_us: int = 0
    """Since when nothing has come …"""
    quiet_whole: bool = True
    """… and whether that is so: all was seen, and we were reading."""
    pong_us: int = 0
    """When we sent the last Pong, or opened it …"""
    longest_us: int = 0
    """… and how long it was without one, at most, while nothing came."""
    whole: bool = True
    """Whether all that came over it was read."""

    @property
    def evidence(self) -> Evidence:
        """Its opening."""
        asked = f"start_from={self.start}" if self.start else "no token"
        return Evidence.of(self.opened_us, f"connection {self.id} was opened with {asked}", b"")

    @property
    def closing(self) -> Evidence:
        """Its end."""
        by = "the provider" if self.closed_by_peer else "us"
        return Evidence.of(self.closed_us or 0, f"connection {self.id} was closed by {by}", b"")

    @property
    def is_websocket(self) -> bool:
        """Whether we can keep it open by Pongs: not server-sent events."""
        stated = text_of(self.declared.members.get("connection-protocol")) if self.declared else ""
        return "sse" not in stated.lower()

    @property
    def in_order(self) -> bool:
        """Whether the log is read in the order of its offsets from the beginning: not where
        compaction may be emulated, which begins with a snapshot (3.19.2).
        """
        type_ = self.declared.type if self.declared else None
        return type_ is not None and (type_.storage != "COMPACTED" or type_.compacts)


@dataclass(slots=True, eq=False)
class FrameSeen:
    """A message came; `records` are the log-records in it, None where it holds none."""

    at_us: int
    connection: ConnectionSeen
    records: int | None
    evidence: Evidence

    @property
    def edition(self) -> str:
        return self.connection.edition


@dataclass(slots=True, eq=False)
class QuietSeen:
    """Nothing came over an open connection for some seconds, and we were reading all the time."""

    connection: ConnectionSeen
    since_us: int
    until_us: int
    longest_us: int
    """How long it was without a Pong of ours, at most."""
    closed_by_peer: bool
    """Whether it ended so; else by a message, by us, or with the trace."""

    @property
    def edition(self) -> str:
        return self.connection.edition

    @property
    def lasted_us(self) -> int:
        return self.until_us - self.since_us

    @property
    def evidence(self) -> tuple[Evidence, Evidence]:
        """Its beginning and its end."""
        number = self.connection.id
        ended = "it was closed by the provider" if self.closed_by_peer else "it was still open"
        return (
            Evidence.of(self.since_us, f"the last that came on connection {number}", b""),
            Evidence.of(self.until_us, f"connection {number}: {ended}", b""),
        )


@dataclass(slots=True, eq=False)
class RefusalSeen:
    """A connection to a stream was refused."""

    at_us: int
    stream: str
    start: str
    status: int
    edition: str

    @property
    def evidence(self) -> Evidence:
        asked = f"start_from={self.start}" if self.start else "no token"
        return Evidence.of(self.at_us, f"a connection with {asked} got status {self.status}", b"")


Place = tuple[str, int]
"""A partition, and an offset in it."""


@dataclass(slots=True, eq=False)
class RecordSeen:
    """A log-record came. Its members have no modules; what it does not state is None or empty."""

    at_us: int
    connection: ConnectionSeen
    ahead_us: int
    """The provider's clock minus ours."""
    raw: bytes
    header: Object
    body: Object | None
    content: Object = field(default_factory=dict)
    """The entity, the content of the member of its class."""
    content_member: str = ""
    kind: str = ""
    """The record-type in short, such as CREATE_UPDATE."""
    token: str = ""
    key: str = ""
    cls: str = ""
    """The class, as 2.1.3 names it."""
    append_us: int | None = None
    place: Place | None = None
    stated: Object = field(default_factory=dict)
    """The whole record as it is stated."""

    @property
    def edition(self) -> str:
        return self.connection.edition

    @property
    def states(self) -> bool:
        """Whether it states an entity, whole or in part."""
        return self.kind in {"CREATE_UPDATE", "CREATE", "UPDATE", "CHANGE"}

    @property
    def ends(self) -> bool:
        return self.kind in {"DELETE", "TOMBSTONE"}

    @property
    def parent_address(self) -> list[str]:
        stated = self.body.get("parent-address") if self.body else None
        return [one for one in stated if isinstance(one, str)] if isinstance(stated, list) else []

    @property
    def evidence(self) -> Evidence:
        where = f", offset {self.place[1]}" if self.place else ""
        kind = self.kind or "record"
        what = f"{kind} of {self.key or 'no entity-key'}{where}, on connection {self.connection.id}"
        return Evidence.of(self.at_us, what, self.raw)


@dataclass(slots=True, eq=False)
class Delivered:
    """A record of a reading, remembered."""

    place: Place
    token: str
    key: str
    kind: str
    append_us: int
    at_us: int
    connection: int
    uuid: str
    """Of the entity, where it is stated."""
    raw: bytes

    @property
    def evidence(self) -> Evidence:
        what = f"{self.kind} of {self.key}, offset {self.place[1]}, on connection {self.connection}"
        return Evidence.of(self.at_us, what, self.raw)


@dataclass(slots=True, eq=False)
class Reading:
    """What one connection has read of a log."""

    connection: ConnectionSeen
    ahead_us: int
    records: dict[Place, Delivered] = field(default_factory=dict)
    partial: bool = False
    """Whether records came that are not remembered."""
    last_us: int = 0
    """When the last record came."""

    @property
    def opened_provider_us(self) -> int:
        """When it was opened, by the provider's clock."""
        return self.connection.opened_us + self.ahead_us

    def sent_us(self, record: Delivered) -> int:
        """When the provider may have sent a record of it, at the earliest, by our clock: what comes
        soon after a pause has waited in buffers.
        """
        soon = [
            pause.since_us
            for pause in self.connection.pauses
            if pause.since_us < record.at_us < pause.until_us + _BUFFERED_US
        ]
        return min((*soon, record.at_us))

    def offsets(self) -> dict[str, list[int]]:
        """The offsets that came, by partition, ascending."""
        found: dict[str, list[int]] = {}
        for partition, offset in sorted(self.records):
            found.setdefault(partition, []).append(offset)
        return found


class ShownEntity(NamedTuple):
    """What a GET shows of an entity."""

    where: str
    """Where it stands."""
    members: Mapping[str, str]
    """See `plain_members`."""
    parents: frozenset[str] = frozenset()
    """What it stands right below, by uuid, in each place where it stands."""


def plain_members(content: Object) -> dict[str, str]:
    """The members of an entity that have one value each: name → value, both without modules."""
    return {
        strip_module(name): _plain(value)
        for name, value in content.items()
        if isinstance(value, str | int | float)
    }


def _plain(value: str | float) -> str:
    text = str(value)
    return text.rpartition(":")[2] if text.startswith("tapi-") else text


@dataclass(slots=True, eq=False)
class StatedEntity:
    """The last that a log has said of an entity-key."""

    cls: str
    uuid: str
    alive: bool
    append_us: int
    evidence: Evidence
    members: Mapping[str, str]
    """See `plain_members`; empty where it has ended."""
    parent: str = ""
    """The uuid of its parent, where its parent-address ends with one."""


@dataclass(slots=True, eq=False)
class Log:
    """All that was read of the log of one stream, at the end of the trace."""

    at_us: int
    declared: DeclaredStream | None
    edition: str
    readings: list[Reading]


@dataclass(slots=True, eq=False)
class NetworkSeen:
    """Current state as two readings by GET agree on it, beside what a log says of these classes."""

    at_us: int
    edition: str
    declared: DeclaredStream
    first_us: int
    """When the first of the two was read, by the provider's clock."""
    shown: dict[tuple[str, str], ShownEntity]
    """(class, uuid) in both of them → what both say alike of it."""
    ever_shown: frozenset[tuple[str, str]]
    stated: list[StatedEntity]
    answer: Evidence
    """The second of them."""


def text_of(value: Any) -> str:
    """The text, or empty for what is none."""
    return value if isinstance(value, str) else ""
