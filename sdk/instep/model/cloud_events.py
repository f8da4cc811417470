"""A change of an entity as a CloudEvent (CloudEvents 1.0.2): pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

import msgspec

from instep.model.entities import Change, ChangeKind

__all__ = ["SCHEMA_VERSION", "CloudEvent", "cloud_event"]

SCHEMA_VERSION: Final = 1
"""Of the types and of `data`. A higher one is told by the end of `type`: `.v2`."""
_ENDED: Final = frozenset({ChangeKind.DELETED, ChangeKind.SWEPT})


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A CloudEvent; encoded as JSON it is one in structured mode."""

    specversion: str
    id: str
    """Cursor and epoch of the change: the same event has the same id whenever it is published."""
    source: str
    """`/instep/CONSUMER/STREAM`, each percent-encoded."""
    type: str
    """`instep.entity.CHANGE.v1`, such as `instep.entity.created.v1`."""
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


class _Data(msgspec.Struct, omit_defaults=True, rename={"entity_class": "class"}):
    entity_class: str
    cursor: int
    token: str
    appended_at_us: int
    entity: msgspec.Raw | None = None
    previous: msgspec.Raw | None = None


def cloud_event(change: Change) -> CloudEvent:
    """The event of a change. Ended entities have no data."""
    source = f"/instep/{quote(change.consumer, safe='')}/{quote(change.stream, safe='')}"
    more: dict[str, Any] = {}
    if change.change not in _ENDED:
        data = _Data(
            change.entity_class,
            change.cursor,
            change.token,
            change.appended_at_us,
            msgspec.Raw(change.body) if change.body else None,
            msgspec.Raw(change.previous) if change.previous else None,
        )
        encoded = msgspec.Raw(msgspec.json.encode(data))
        more = {"datacontenttype": "application/json", "data": encoded}
    at = datetime.fromtimestamp(change.committed_at_us / 1e6, UTC)
    return CloudEvent(
        specversion="1.0",
        id=f"{change.cursor}-{change.epoch}",
        source=source,
        type=f"instep.entity.{change.change.value}.v{SCHEMA_VERSION}",
        subject=change.key or "*",
        time=at.isoformat().replace("+00:00", "Z"),
        partitionkey=f"{source}/{quote(change.key, safe='')}",
        **more,
    )
