"""What a store shows to readers: entities, changes, quarantined records, the status of a stream."""

from __future__ import annotations

import re
from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import msgspec

from instep.errors import ConfigurationError
from instep.model.freshness import Freshness, ProviderMonitor, StreamReport
from instep.model.json_patch import Operation, json_patch
from instep.model.position import Position
from instep.model.records import RecordType

if TYPE_CHECKING:
    pass

__all__ = [
    "Ancestor",
    "Change",
    "ChangeKind",
    "EntityCount",
    "JournalEnd",
    "ProofKind",
    "Quarantined",
    "Reference",
    "Skeleton",
    "StoredEntity",
    "StreamStatus",
    "Unproven",
    "folded_uuid",
    "identity_digest",
    "is_uuid",
]

_CURSOR_DIGITS: Final = 19
_UUID: Final = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}").fullmatch


def is_uuid(text: str) -> bool:
    """Whether the text has the form of a uuid."""
    return _UUID(text) is not None


def folded_uuid(text: str) -> str:
    """The text as uuids compare: without regard to case where it has the form of a uuid (RFC 4122
    3), and as it is else.
    """
    lower = text.lower()
    # Nearly all are in lower case: they need no look at their form.
    return lower if lower != text and _UUID(text) else text


def identity_digest(entity_class: str, uuid: str, key: str) -> int:
    """A number of 64 bits for what an entity is, in whatever stream: its class and uuid, or its key
    where it has none (A20).
    """
    named = f"{entity_class}\0{folded_uuid(uuid or key)}"
    return int.from_bytes(blake2b(named.encode(), digest_size=8).digest(), "big")


class StoredEntity(msgspec.Struct, frozen=True, kw_only=True):
    """One entity as the store holds it; `body` is the entity's JSON as the provider stated it."""

    stream: str
    key: str
    entity_class: str
    token: str
    appended_at_us: int
    attempt: int
    body: bytes
    envelope: bytes = b""
    uuid: str = ""
    proven: bool = True
    """False: it is not known whether the entity exists as it is stored; `unproven` says why."""
    unproven: str = ""
    """Why it is unproven (`instep.model.holds.UnprovenReason`), with the digest of what cannot be
    read; empty while it is proven (A22).
    """
    proven_at_us: int = 0
    """When it was last proven to exist; 0 where that is not known."""
    proven_by: str = ""
    """By what (`ProofKind`); empty where that is not known."""
    consumer: str = ""


class EntityCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many entities of one class a stream has in the store."""

    consumer: str
    stream: str
    entity_class: str
    entities: int


class Ancestor(msgspec.Struct, frozen=True, kw_only=True):
    """One element of a parent-address (TR-548 3.10.1)."""

    name: str
    """As stated: `node-uuid`, `route-local-id`."""
    uuid: str
    """The uuid; of a local class its place, `<uuid>/<local-id>`."""
    known: bool
    """Whether an entity with this uuid is stored."""


class Skeleton(msgspec.Struct, frozen=True, kw_only=True):
    """An entity that is known from parent-addresses only: it has not come yet, or it has ended
    before what is below it (TR-548 ST-2.1 note 4).
    """

    name: str
    uuid: str
    parent: str
    """The uuid of its own parent; empty at the top."""
    entities: int
    """How many stored entities are below it, at any depth."""
    since_us: int
    """The commit since which it is missed: that of the first entity below it, or of its end."""
    consumer: str = ""


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """A `*-uuid` leaf of an entity: it refers to another one (TR-548 ST-4.1)."""

    stream: str
    key: str
    entity_class: str
    """Stream, key and class of the entity that refers."""
    uuid: str
    """Its own uuid; empty for one that has none, such as an alarm."""
    role: str
    """The member that contains the leaf, such as `client-node-edge-point`; empty at the top."""
    name: str
    """The leaf, such as `node-edge-point-uuid`."""
    target: str
    """The uuid that it states."""
    known: bool
    """Whether an entity with this uuid is stored, in any stream of the consumer."""
    since_us: int
    """The commit that first stated it or, if the target has ended since then, that of the end."""
    consumer: str = ""


class ChangeKind(StrEnum):
    """How a commit changed the entity."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"
    SWEPT = "swept"
    UNPROVEN = "unproven"
    """It is not known any more whether it exists as stored (A22). Without a key: so for what was
    not met of the whole stream, or of the class. The envelope has the reason.
    """
    PROVEN = "proven"
    """It is known again."""


class ProofKind(StrEnum):
    """What has proven last that an entity exists (A22)."""

    ATTEMPT = "attempt"
    """An attempt has met it in the log."""
    BASELINE = "baseline"
    """A request for current state has shown it."""
    AUDIT = "audit"
    """An audit has found it right."""
    RECORD = "record"
    """A record of the stream states it."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One committed change. To read on, pass its `cursor` with its `epoch`; cursors grow in the
    order of the commits.
    """

    cursor: int
    stream: str
    key: str
    entity_class: str
    change: ChangeKind
    kind: RecordType | None
    """The kind of the record that caused it; None for a swept entity."""
    token: str
    appended_at_us: int
    committed_at_us: int
    body: bytes = b""
    previous: bytes | None = None
    """The body before the change, where the journal keeps it."""
    envelope: bytes = b""
    """The envelope of the record that caused it: its event time, parent address and so on. Empty
    for a swept entity.
    """
    consumer: str = ""
    epoch: str = ""
    """Of which writing of the journal the cursor is. Keep it beside the cursor: after a restore, in
    a promoted replica or a copied file the same cursor is of another epoch. Empty where the store
    has none.
    """

    @property
    def place(self) -> str:
        """Cursor and epoch as one text, to begin a subscription after this change."""
        return JournalEnd(self.cursor, self.epoch).place

    def patch(self) -> list[Operation]:
        """The change as a JSON Patch (RFC 6902) of the body before it: a new entity is added at the
        root, one that has ended is removed there.

        Raises `ConfigurationError` where the journal does not keep what that takes, and
        `ValueError` for a body that is no JSON.
        """
        if self.change in (ChangeKind.DELETED, ChangeKind.SWEPT):
            return [{"op": "remove", "path": ""}]
        updated = self.change is ChangeKind.UPDATED
        if not self.body or (updated and self.previous is None):
            raise ConfigurationError(
                "the journal keeps no bodies to compare",
                where=f"change {self.cursor}",
                hint='set journal = "previous" in the sink\'s options',
            )
        body = msgspec.json.decode(self.body)
        if not updated:
            return [{"op": "add", "path": "", "value": body}]
        assert self.previous is not None
        return json_patch(msgspec.json.decode(self.previous), body)


class JournalEnd(msgspec.Struct, frozen=True):
    """A place in a journal: after the change with this cursor. `StoreReader.journal_end` gives the
    newest.
    """

    cursor: int
    """0: there was none yet."""
    epoch: str = ""
    """See `Change.epoch`."""

    @property
    def place(self) -> str:
        """Cursor and epoch as one text, to begin a subscription there."""
        return f"{self.cursor}-{self.epoch}"

    @classmethod
    def at(cls, place: str) -> JournalEnd:
        """The change of a place. Raises `ConfigurationError` for a text that is none."""
        cursor, _, epoch = place.partition("-")
        if not (cursor.isascii() and cursor.isdecimal() and len(cursor) <= _CURSOR_DIGITS):
            raise ConfigurationError(
                f"{place[:_CURSOR_DIGITS]!a} is not a place in a journal",
                where="a subscription",
                hint="give `Change.place` or `JournalEnd.place` back as it is",
            )
        return cls(int(cursor), epoch)


class Quarantined(msgspec.Struct, frozen=True, kw_only=True):
    """A record that could not be read, as it was received."""

    id: int
    stream: str
    reason: str
    token: str | None
    received_at_us: int
    raw: bytes
    consumer: str = ""
    replayed_at_us: int | None = None
    times: int = 1
    """How often it was received."""
    last_at_us: int = 0
    """When it was received last; 0 where that is not known."""
    key: str | None = None
    """The entity-key, where at least that can be read."""
    digest: str = ""
    """Identifies its bytes."""
    accepted_at_us: int | None = None
    """When an operator has accepted that it is lost: it holds no entity any more (A17)."""


class Unproven(msgspec.Struct, frozen=True, kw_only=True):
    """Why something of a stream is unproven (A22)."""

    reason: str
    """See `instep.model.holds.UnprovenReason`."""
    entity_class: str = ""
    """Empty: of any class."""
    partition: str | None = None
    """None: of any partition."""
    digest: str = ""
    """Of the record or element that cannot be read."""
    since_us: int = 0


class StreamStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The committed status of one stream of one consumer."""

    consumer: str
    stream: str
    position: Position
    info: dict[str, Any]
    """The `StreamInfo` last discovered, as plain data."""
    entities: int
    quarantined: int
    deviations: dict[str, int]
    """Departures of the provider from its specification: kind → count (A10)."""
    updated_at_us: int
    unproven: int = 0
    """Entities of which it is not known whether they exist as stored (`StoredEntity.proven`)."""
    unproven_because: tuple[Unproven, ...] = ()
    """Why, of the stream, its partitions and its classes (A22)."""
    samples: dict[str, bytes] = {}
    """Of deviations that are texts without a record: kind → the beginning of one of them."""
    report: StreamReport | None = None
    """What the process that follows the stream said last; None: nothing, or none is kept."""
    monitor: ProviderMonitor | None = None
    """What the provider says of our reading (TR-548 3.18); None: nothing."""
    heard_s: float | None = None
    """How long ago that process was heard, in seconds, when this was read; None: never."""
    stale_after_s: float = 0.0
    """From which silence of that process on what it said is not of now."""

    @property
    def freshness(self) -> Freshness:
        """How fresh what is stored of the stream is, when this was read."""
        position = self.position
        return Freshness(
            consumer=self.consumer,
            stream=self.stream,
            phase=position.phase,
            report=self.report,
            heard_s=self.heard_s,
            stale_after_s=self.stale_after_s,
            # What was replayed or dropped since then is in quarantine no more.
            unreadable=min(position.unreadable, self.quarantined),
            unproven=self.unproven or position.unproven,
            classes=tuple(self.info.get("classes") or ()),
            records=position.records,
        )
