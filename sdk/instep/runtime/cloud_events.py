"""Makes a CloudEvent of a change of an entity."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

import msgspec

from instep.model.cloud_events import CloudEvent
from instep.model.entities import Change, ChangeKind

__all__ = ["cloud_event"]

_SCHEMA_VERSION: Final = 1
"""Of the types and of `data`: it ends the type of an event."""
_ENDED: Final = frozenset({ChangeKind.DELETED, ChangeKind.SWEPT})


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
        type=f"instep.entity.{change.change.value}.v{_SCHEMA_VERSION}",
        subject=change.key or "*",
        time=at.isoformat().replace("+00:00", "Z"),
        partitionkey=f"{source}/{quote(change.key, safe='')}",
        **more,
    )
