"""What keeps entities from being swept, and why they are unproven (A17, A19, A22). Plain data."""

from __future__ import annotations

from enum import StrEnum

import msgspec

__all__ = ["EmptyReadings", "Hold", "UnprovenReason"]


class UnprovenReason(StrEnum):
    """Why it is not known whether an entity still exists as it is stored. Of several reasons,
    readers show the first in this order: the one that ends last.
    """

    NOT_OFFERED = "not-offered"
    """The provider does not offer its stream any more (A20)."""
    UNREADABLE_RECORD = "unreadable-record"
    """A record that cannot be read may be about it (A17)."""
    UNREADABLE_ELEMENT = "unreadable-element"
    """An element of its class in a baseline cannot be read (A17)."""
    EMPTY_ANSWER = "empty-answer"
    """The provider states nothing of its class, where something is stored (A19)."""
    NO_RESOURCE = "no-resource"
    """No resource shows its class, and the log has not stated it since (A15)."""


class Hold(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an attempt could not read. What it may be about is not swept, but unproven (A17)."""

    reason: UnprovenReason
    entity_class: str = ""
    """Empty: any."""
    partition: str | None = None
    """None: any."""
    digest: str = ""
    """`Unreadable.digest` of what cannot be read; empty where nothing was there to be read."""
    offset: int = -1
    """Its place in the partition; -1 where unknown."""
    lineage: int = 0
    """The log in which it stands."""
    met_before: bool = False
    """Whether an earlier attempt has met it in the same log: then an entity with a later record is
    not held, since its next record would lie behind that.
    """


class EmptyReadings(msgspec.Struct, frozen=True, omit_defaults=True):
    """Classes of which the store holds something and the provider states nothing (A19)."""

    since_us: dict[str, int] = {}
    """Of each class the provider's time since which it is so."""
    readings: int = 0
    """How many readings in a row have shown such a class."""
    reread_at_us: tuple[int, ...] = ()
    """When current state is read again because of them, in order."""
