"""Reads a stream-context: the streams a provider offers, and their types (TR-548 3.7). Pure."""

from __future__ import annotations

import math
import re
from typing import Any, Final

import msgspec

from instep.errors import DiscoveryError
from instep.model.streams import StreamState
from instep_tapi.facts.names import class_named, short_identity, strip_module
from instep_tapi.facts.stream_profile import StreamProfile, profile_of
from instep_tapi.facts.times import duration_s

__all__ = ["MEMBERS", "AvailableStream", "StreamContext", "StreamType", "parse_context"]

_STREAMS: Final[dict[str, Any]] = {"available-stream": {}, "supported-stream-type": {}}
_IN_CONTEXT: Final = {"stream-context": _STREAMS, **_STREAMS}
MEMBERS: Final = {"context": _IN_CONTEXT, **_IN_CONTEXT}
"""The members that `parse_context` reads: name → what is read in it, empty for all of it."""


_WRAPPER_DEPTH = 3


_MAX_STREAMS = 1_000


_MAX_CLASSES = 256


_MAX_TEXT_CHARS = 2_048


_ALTERNATIVE: Final = re.compile(r"[\s,;|]+(?=[A-Za-z][A-Za-z0-9+.-]*://)")
"""What separates the alternatives in one text: the YANG of 2.4 and later leaves the choice, and who
states one text as in 2.1.3 may have taken that over.
"""


class StreamType(msgspec.Struct, frozen=True, kw_only=True):
    """supported-stream-type (TR-548 3.7.1), in short names and seconds."""

    uuid: str
    name: str = ""
    classes: tuple[str, ...] = ()
    storage_strategy: str = ""
    record_strategy: str = ""
    record_retention_s: float | None = None
    forgets: bool = False
    """Whether record-retention is stated, a time or bytes, and is not FOREVER."""
    compacted_details: bool = False
    """Whether compacted-log-details are stated. Without them COMPACTED is not trusted."""
    tombstone_retention_s: float | None = None
    compaction_delay_s: float | None = None
    protocols: tuple[str, ...] = ()
    encoding: str = ""
    """As stated: from TAPI 2.4 on; JSON is the default."""
    segment_size: str = ""
    """As stated: a text without a form of its own (3.7.1)."""

    @property
    def deviations(self) -> tuple[str, ...]:
        """What the type states against the specification, by kinds of `DEVIATIONS`."""
        # Tombstone-retention is to be longer than compaction-delay (TR-548 4.3.4).
        delay_s, retention_s = self.compaction_delay_s, self.tombstone_retention_s
        if delay_s is None or retention_s is None or retention_s >= delay_s:
            return ()
        return ("retention-below-delay",)


class AvailableStream(msgspec.Struct, frozen=True, kw_only=True):
    """available-stream (TR-548 3.7.2), with its type if that is stated."""

    uuid: str
    stream_id: str = ""
    state: StreamState = StreamState.UNKNOWN
    addresses: tuple[str, ...] = ()
    """Each may be tried: of one text (TAPI 2.1.3), or of a list (2.4 and later)."""
    protocol: str = ""
    type: StreamType | None = None
    profile: StreamProfile = StreamProfile()


class StreamContext(msgspec.Struct, frozen=True):
    """The streams of a provider and their types."""

    streams: tuple[AvailableStream, ...] = ()
    types: tuple[StreamType, ...] = ()

    def with_revision(self, revision: str) -> StreamContext:
        """The same, where the provider states this revision of tapi-streaming."""
        streams = (
            msgspec.structs.replace(one, profile=one.profile.with_revision(revision))
            for one in self.streams
        )
        return StreamContext(tuple(streams), self.types)


def parse_context(document: Any) -> StreamContext | None:
    """Read a stream-context, alone or within its context, whatever its prefixes (3.7).

    None where the document holds none. Raises `DiscoveryError` for more streams than anybody has.
    """
    container = _stream_context(document, _WRAPPER_DEPTH)
    if container is None:
        return None
    stated = {
        _text(item.get("uuid")): item for item in _objects(container, "supported-stream-type")
    }
    types = {uuid: _stream_type(item) for uuid, item in stated.items()}
    streams = tuple(
        _available_stream(item, types, stated) for item in _objects(container, "available-stream")
    )
    return StreamContext(streams, tuple(types.values()))


def _stream_context(value: Any, depth: int) -> dict[str, Any] | None:
    if not isinstance(value, dict) or depth == 0:
        return None
    members = _members(value)
    if "available-stream" in members or "supported-stream-type" in members:
        return members
    for name in ("stream-context", "context"):
        inner = members.get(name)
        if isinstance(inner, dict):
            found = _stream_context(inner, depth - 1)
            if found is None and name == "stream-context":
                return _members(inner)  # a provider without a stream at this moment
            return found
    return None


def _stream_type(item: dict[str, Any]) -> StreamType:
    details = item.get("compacted-log-details")
    compacted = _members(details) if isinstance(details, dict) else {}
    protocols = item.get("connection-protocol-details")
    allowed = _members(protocols) if isinstance(protocols, dict) else item
    # tapi-streaming of the same revision in another branch says stream-type-content.
    content = item.get("record-content") or item.get("stream-type-content")
    retention = item.get("record-retention")
    retention_s = duration_s(retention)
    return StreamType(
        uuid=_text(item.get("uuid")),
        name=_text(item.get("stream-type-name")),
        classes=tuple(dict.fromkeys(class_named(text) for text in _texts(content))),
        # Its details are stated of a compacted log alone, which is the default from 2.4 on.
        storage_strategy=short_identity(_text(item.get("log-storage-strategy")))
        or ("COMPACTED" if compacted else ""),
        record_strategy=short_identity(_text(item.get("log-record-strategy"))),
        record_retention_s=retention_s,
        forgets=retention not in (None, "") and retention_s != math.inf,
        compacted_details=bool(compacted),
        tombstone_retention_s=duration_s(compacted.get("tombstone-retention")),
        compaction_delay_s=duration_s(compacted.get("compaction-delay")),
        protocols=_texts(allowed.get("allowed-connection-protocols")),
        encoding=short_identity(_text(allowed.get("encoding-format"))),
        segment_size=_stated(item.get("segment-size")),
    )


def _available_stream(
    item: dict[str, Any], types: dict[str, StreamType], stated_types: dict[str, dict[str, Any]]
) -> AvailableStream:
    reference = item.get("supported-stream-type")
    stated = _members(reference) if isinstance(reference, dict) else {}
    uuid = (
        stated.get("supported-stream-type-uuid")
        or stated.get("uuid")
        or item.get("supported-stream-type-uuid")
        or (reference if isinstance(reference, str) else "")
    )
    stream_type = types.get(_text(uuid))
    stated_type = stated_types.get(_text(uuid), stated)
    if stream_type is None and "log-storage-strategy" in stated:
        stream_type = _stream_type(stated)
    state = short_identity(_text(item.get("stream-state")))
    return AvailableStream(
        uuid=_text(item.get("uuid")),
        stream_id=_text(item.get("stream-id")),
        state=StreamState[state] if state in StreamState.__members__ else StreamState.UNKNOWN,
        addresses=_addresses(item.get("connection-address")),
        protocol=_text(item.get("connection-protocol")),
        type=stream_type,
        profile=profile_of(item, stated_type),
    )


def _addresses(value: Any) -> tuple[str, ...]:
    alternatives = (one for text in _texts(value) for one in _ALTERNATIVE.split(text))
    return tuple(dict.fromkeys(one for one in alternatives if one))


def _members(value: dict[str, Any]) -> dict[str, Any]:
    return {strip_module(name): inner for name, inner in value.items()}


def _objects(container: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The entries of a list; an entry that stands alone is a list of one."""
    value = container.get(name)
    items = value if isinstance(value, list) else [value]
    if len(items) > _MAX_STREAMS:
        raise DiscoveryError(
            f"{len(items):,} entries of {name}; at most {_MAX_STREAMS:,} are taken",
            hint="no provider streams that much: is this the right address?",
        )
    return [_members(item) for item in items if isinstance(item, dict)]


def _text(value: Any) -> str:
    """Empty for what cannot be a name in a store: no text, or one with a NUL in it."""
    return value.strip()[:_MAX_TEXT_CHARS] if isinstance(value, str) and "\0" not in value else ""


def _stated(value: Any) -> str:
    """A text, or a number in the place of one."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return _text(str(value) if number else value)


def _texts(value: Any) -> tuple[str, ...]:
    items = value if isinstance(value, list) else [value]
    return tuple(_text(item) for item in items[:_MAX_CLASSES] if _text(item))
