"""What a store shows to readers: streams, entities, changes, quarantine. Used by the command line
and by subscribers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from instep.lease import LeaseState
from instep.position import Position
from instep.records import Delivery, Kind

if TYPE_CHECKING:
    from instep.ports import Census

__all__ = [
    "Change",
    "ChangeKind",
    "HoldsLeases",
    "HoldsSweeps",
    "Quarantined",
    "StoreReader",
    "StoredEntity",
    "StreamStatus",
]


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
    """False: a later alignment could neither confirm nor refute it (its class has no readable
    resource).
    """
    consumer: str = ""


class ChangeKind(StrEnum):
    """What became of the entity."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"
    SWEPT = "swept"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One committed change, in the order of commit; reading goes on after its `cursor`."""

    cursor: int
    stream: str
    key: str
    entity_class: str
    change: ChangeKind
    kind: Kind | None
    """The kind of the record that caused it; None for a swept entity."""
    token: str
    appended_at_us: int
    committed_at_us: int
    body: bytes = b""
    previous: bytes | None = None
    """The body before the change, where the journal keeps it."""
    consumer: str = ""


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


class StreamStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One stream of one consumer, as durable in the store."""

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


class StoreReader(Protocol):
    """Read access to a store, beside the consumer that writes it. Raises `SinkError`."""

    async def streams(self) -> list[StreamStatus]: ...

    def entities(
        self, *, stream: str | None = None, entity_class: str | None = None
    ) -> AsyncIterator[StoredEntity]:
        """Entities in a stable order, read in pages: memory does not grow with the store."""
        ...

    def changes(
        self, cursor: int = 0, *, stream: str | None = None, follow: bool = False
    ) -> AsyncIterator[Change]:
        """The journal after `cursor`, in order of commit; with `follow` it waits for more."""
        ...

    def quarantine(
        self, *, stream: str | None = None, id: int | None = None
    ) -> AsyncIterator[Quarantined]: ...

    async def replay(self, id: int, delivery: Delivery) -> int:
        """Commit what a quarantined record turned out to say, by rule A3, and mark it replayed;
        returns entities changed.
        """
        ...

    async def drop(self, ids: Sequence[int] | None = None, *, stream: str | None = None) -> int:
        """Forget records in quarantine for good: these, or all (of a stream); returns how many."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class HoldsSweeps(Protocol):
    """A reader through which a held sweep can be looked at and released (A6)."""

    async def census(self, consumer: str, stream: str, attempt: int) -> Census:
        """What the sweep of this attempt would remove."""
        ...

    async def release_sweep(self, consumer: str, stream: str, attempt: int) -> None:
        """Durably let the sweep of this attempt go on, whichever process consumes."""
        ...


@runtime_checkable
class HoldsLeases(Protocol):
    """A reader that tells which process consumes, of those that could."""

    async def leases(self) -> dict[str, LeaseState]:
        """By consumer; consumers without a lease are not in it."""
        ...

    async def ask_to_hand_over(self, consumer: str) -> LeaseState:
        """Let the holder give its lease up at its next beat; returns the lease as it was. Raises
        `SinkError` where nobody holds it.
        """
        ...
