"""An event of the journal as others read it (CloudEvents 1.0.2)."""

from __future__ import annotations

import msgspec

__all__ = ["CloudEvent"]


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A CloudEvent; encoded as JSON it is one in structured mode."""

    specversion: str
    id: str
    """Cursor and epoch of the change: the same event has the same id whenever it is published."""
    source: str
    """`/instep/CONSUMER/STREAM`, each percent-encoded."""
    type: str
    """The change, with the version of the schema: instep.entity.created.v1."""
    subject: str
    """The key of the entity."""
    time: str
    """When the change was committed (RFC 3339)."""
    partitionkey: str
    """Source and subject: events with one key are published in order, and a log that is compacted
    by it keeps the last event of each entity (extension "partitioning").
    """
    datacontenttype: str = ""
    data: msgspec.Raw | None = None
    """None: the entity has ended, a tombstone for a log that is compacted."""
