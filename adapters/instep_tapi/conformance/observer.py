"""Reads the events of a trace as statements of TR-548: declared streams, records, readings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from instep.conformance import (
    ConnectionClosed,
    ConnectionOpened,
    ConnectionRefused,
    Event,
    Evidence,
    MessageReceived,
    MessagesSkipped,
    Observer,
    PongSent,
    PongsWithheld,
    ReadingPaused,
    ReadingResumed,
    ResponseReceived,
)
from instep_tapi.conformance.observations import (
    KEPT_BYTES,
    MAX_READ_RECORDS,
    MAX_READINGS,
    ConnectionSeen,
    DeclaredStream,
    DeclaredType,
    Delivered,
    FrameSeen,
    Log,
    NetworkSeen,
    Object,
    Place,
    QuietSeen,
    Reading,
    ReadingPause,
    RecordSeen,
    RefusalSeen,
    ShownEntity,
    StatedEntity,
    StreamsSeen,
    TypeSeen,
    plain_members,
    text_of,
)
from instep_tapi.facts.containment import CONTEXT, contained_class, contains
from instep_tapi.facts.names import class_named, short_identity, strip_module
from instep_tapi.facts.stream_profile import TAPI_2_1_3, profile_of
from instep_tapi.facts.times import time_us

__all__ = ["TapiObserver"]

_WRAPPERS: Final = ("stream-record", "notification")
_BODY: Final = {
    "event-time-stamp",
    "event-source",
    "additional-event-info",
    "parent-address",
    "record-content",
}
"""The members of log-record-body that are no entity."""
_MAX_KEYS: Final = 200_000
"""Most entities of a log that are compared with a GET."""
_SETTLED_US: Final = 5_000_000
"""A silence after which all is taken as read that the log had."""
_SHORTEST_QUIET_US: Final = 3_000_000
"""A shorter silence is none."""
_MAX_DEPTH: Final = 40
_decode: Final = msgspec.json.Decoder().decode


class TapiObserver(Observer):
    """See `Observer`. `edition` forces one; without it each stream shows its own."""

    def __init__(self, edition: str = "") -> None:
        self._forced = edition
        self.edition = edition
        self._streams: dict[str, DeclaredStream] = {}
        self._types: dict[str, bytes] = {}
        self._connections: dict[int, ConnectionSeen] = {}
        self._open_readings: dict[int, Reading] = {}
        self._readings: dict[str, list[Reading]] = {}
        self._stated: dict[str, dict[str, dict[str, StatedEntity]]] = {}
        """Stream → entity-key → uuid: one key may stand for several, wrongly."""
        self._full: set[str] = set()
        """Streams that were read from the oldest record, whole."""
        self._networks: list[tuple[int, int, dict[tuple[str, str], ShownEntity], Evidence]] = []
        self._last_answer = b""
        self._ahead_us = 0

    def edition_of(self, observation: Any) -> str:
        """See `Observer`."""
        return str(observation.edition)

    def read(self, event: Event) -> Iterator[Any]:
        """See `Observer`."""
        match event:
            case ResponseReceived():
                yield from self._answer(event)
            case ConnectionOpened():
                yield self._opened(event)
            case MessageReceived():
                yield from self._frame(event)
            case ConnectionRefused():
                edition = self._edition_of_stream(event.stream)
                yield RefusalSeen(event.at_us, event.stream, event.start, event.status, edition)
            case _ if connection := self._connections.get(getattr(event, "connection", 0)):
                yield from self._happened(connection, event)
            case _:
                pass

    def _happened(
        self, connection: ConnectionSeen, event: Event
    ) -> Iterator[ConnectionSeen | QuietSeen]:
        """What else happened to a connection."""
        at_us = event.at_us
        match event:
            case ConnectionClosed():
                theirs = not event.by_us
                yield from _quiet(connection, at_us, closed_by_peer=theirs)
                _resumed(connection, at_us, backed_up=False)
                connection.closed_us, connection.closed_by_peer = at_us, theirs
                yield connection
            case MessagesSkipped():
                self._full.discard(connection.stream)
                connection.whole = False
                if (reading := self._open_readings.get(connection.id)) is not None:
                    reading.partial = True
                connection.quiet_us, connection.quiet_whole = at_us, False
            case PongSent():
                connection.longest_us = max(connection.longest_us, at_us - connection.pong_us)
                connection.pong_us = at_us
            case PongsWithheld():
                connection.withheld_us = at_us
            case ReadingPaused():
                connection.paused_us, connection.quiet_whole = at_us, False
            case ReadingResumed():
                _resumed(connection, at_us, backed_up=event.backed_up)

    # -- what is declared ------------------------------------------------------------------------

    def _answer(self, event: ResponseReceived) -> Iterator[Any]:
        self._ahead_us = event.ahead_us
        if event.status != 200 or not event.content:
            return
        try:
            document = _decode(event.content)
        except (msgspec.MsgspecError, RecursionError):
            return
        evidence = Evidence.of(event.at_us, f"the answer to GET {event.path}", event.content)
        container = _stream_context(document)
        if container is not None:
            yield from self._streams_seen(event, container, evidence)
        if (root := _context(document, event.path)) is not None:
            shown: dict[tuple[str, str], ShownEntity] = {}
            _entities(root, CONTEXT, "", shown)
            network = (event.at_us, event.at_us + self._ahead_us, shown, evidence)
            # Two are enough: one of the beginning, and the last.
            self._networks = [*self._networks[:1], network]

    def _streams_seen(
        self, event: ResponseReceived, container: Object, evidence: Evidence
    ) -> Iterator[StreamsSeen | TypeSeen]:
        stated = _objects(container.get("supported-stream-type"))
        by_uuid = {text_of(one.get("uuid")): one for one in stated}
        streams: list[DeclaredStream] = []
        editions: dict[str, str] = {}
        for item in _objects(container.get("available-stream")):
            reference = _reference(item)
            profile = profile_of(item, by_uuid.get(reference, {}))
            edition = self._forced or profile.tapi
            editions[reference] = edition
            streams.append(DeclaredStream(item, None, edition, reference))
        other = next(iter(editions.values()), self._forced or TAPI_2_1_3)
        types = [DeclaredType(one, editions.get(text_of(one.get("uuid")), other)) for one in stated]
        typed = {one.uuid: one for one in types}
        for stream in streams:
            stream.type = typed.get(stream.reference)
            self._streams[stream.uuid] = stream
        self.edition = self._forced or other
        for type_ in types:
            encoded = msgspec.json.encode(type_.members)
            if self._types.get(type_.uuid) != encoded:
                self._types[type_.uuid] = encoded
                part = Evidence.of(event.at_us, f"supported-stream-type {type_.name}", encoded)
                yield TypeSeen(event.at_us, type_.edition, type_, part)
        changed = msgspec.json.encode(container) != self._last_answer
        self._last_answer = msgspec.json.encode(container)
        yield StreamsSeen(event.at_us, self.edition, streams, types, changed, evidence, container)

    # -- what is sent ----------------------------------------------------------------------------

    def _opened(self, event: ConnectionOpened) -> ConnectionSeen:
        declared = self._streams.get(event.stream)
        edition = self._edition_of_stream(event.stream)
        connection = ConnectionSeen(
            event.connection,
            event.stream,
            event.start,
            event.at_us,
            declared,
            edition,
            event.asked_us,
        )
        connection.quiet_us = connection.pong_us = event.at_us
        self._connections[event.connection] = connection
        if len(self._connections) > 1_000:
            del self._connections[next(iter(self._connections))]
        reading = Reading(connection, self._ahead_us)
        self._open_readings[event.connection] = reading
        readings = self._readings.setdefault(event.stream, [])
        readings.append(reading)
        if len(readings) > MAX_READINGS:
            spared = min(readings[1:-1], key=_worth)
            readings.remove(spared)
            self._open_readings.pop(spared.connection.id, None)
        if not event.start:
            self._full.add(event.stream)
        return connection

    def _edition_of_stream(self, uuid: str) -> str:
        declared = self._streams.get(uuid)
        return declared.edition if declared else self._forced or TAPI_2_1_3

    def _frame(self, event: MessageReceived) -> Iterator[FrameSeen | RecordSeen | QuietSeen]:
        connection = self._connections.get(event.connection)
        if connection is None:
            return
        if event.at_us - connection.quiet_us > _SHORTEST_QUIET_US:
            yield from _quiet(connection, event.at_us)
        connection.quiet_us, connection.quiet_whole = event.at_us, connection.paused_us is None
        connection.longest_us = 0
        what = f"a message on connection {event.connection}"
        evidence = Evidence.of(event.at_us, what, event.content)
        records = _records(event.content)
        if records is None:
            self._full.discard(connection.stream)
            connection.whole = False
            if (reading := self._open_readings.get(connection.id)) is not None:
                reading.partial = True
        yield FrameSeen(
            event.at_us, connection, None if records is None else len(records), evidence
        )
        for item in records or ():
            alone = records is not None and len(records) == 1
            raw = event.content if alone else msgspec.json.encode(item)
            seen = _record(item, raw, event.at_us, connection, self._ahead_us)
            self._remember(seen)
            yield seen

    def _remember(self, seen: RecordSeen) -> None:
        connection = seen.connection
        connection.appended_us = max(connection.appended_us, seen.append_us or 0)
        reading = self._open_readings.get(seen.connection.id)
        if reading is not None:
            self._remember_place(reading, seen)
        if not seen.key or not (seen.states or seen.ends or seen.kind == "INFORMATION"):
            self._full.discard(seen.connection.stream)
            return
        stated = self._stated.setdefault(seen.connection.stream, {})
        if seen.key not in stated and len(stated) >= _MAX_KEYS:
            self._full.discard(seen.connection.stream)
            return
        of_key = stated.setdefault(seen.key, {})
        append_us = seen.append_us or 0
        cut = Evidence.of(seen.at_us, seen.evidence.what, seen.raw[:KEPT_BYTES])
        if seen.ends:
            for uuid, known in of_key.items():
                if append_us >= known.append_us:
                    of_key[uuid] = StatedEntity(known.cls, uuid, False, append_us, cut, {})
        elif seen.states:
            uuid = text_of(seen.content.get("uuid"))
            last = of_key.get(uuid)
            alive = _detector_state(seen.content) != "CLEAR"
            if last is None or append_us >= last.append_us:
                members = plain_members(seen.content)
                parent = _parent(seen)
                of_key[uuid] = StatedEntity(seen.cls, uuid, alive, append_us, cut, members, parent)

    def _remember_place(self, reading: Reading, seen: RecordSeen) -> None:
        reading.last_us = seen.at_us
        if (
            seen.place is None
            or seen.append_us is None
            or not seen.token
            or not seen.key
            or len(reading.records) >= MAX_READ_RECORDS
        ):
            reading.partial = True
        else:
            reading.records.setdefault(
                seen.place,
                Delivered(
                    seen.place,
                    seen.token,
                    seen.key,
                    seen.kind,
                    seen.append_us,
                    seen.at_us,
                    seen.connection.id,
                    text_of(seen.content.get("uuid")),
                    seen.raw[:KEPT_BYTES],
                ),
            )

    # -- the whole -------------------------------------------------------------------------------

    def end(self, at_us: int) -> Iterator[Log | NetworkSeen | QuietSeen]:
        """See `Observer`."""
        for connection in self._connections.values():
            if connection.closed_us is None:
                yield from _quiet(connection, at_us)
        for uuid, readings in self._readings.items():
            declared = self._streams.get(uuid)
            yield Log(at_us, declared, self._edition_of_stream(uuid), readings)
        if len(self._networks) < 2:
            return
        (first, first_provider, shown, _), (second, _, again, answer) = self._networks
        if second - first < 1_000_000:
            return
        both = {
            entity: ShownEntity(
                one.where,
                dict(one.members.items() & again[entity].members.items()),
                one.parents | again[entity].parents,
            )
            for entity, one in shown.items()
            if entity in again
        }
        for uuid in self._full:
            declared = self._streams.get(uuid)
            if declared is None or declared.type is None:
                continue
            if self._settled(uuid, first_provider, at_us) and declared.state == "ACTIVE":
                yield NetworkSeen(
                    at_us,
                    declared.edition,
                    declared,
                    first_provider,
                    both,
                    frozenset(shown) | frozenset(again),
                    [one for of in self._stated.get(uuid, {}).values() for one in of.values()],
                    answer,
                )

    def _settled(self, uuid: str, since_us: int, at_us: int) -> bool:
        """Whether all was read that the log had then: something newer came, or silence."""
        readings = self._readings.get(uuid, [])
        if not readings:
            return False
        last = readings[-1]
        if (
            last.connection.closed_us is not None
            and last.connection.closed_us < at_us - _SETTLED_US
        ):
            return False
        newest = max((one.append_us for one in last.records.values()), default=0)
        return (
            newest > since_us or at_us - max(last.last_us, last.connection.opened_us) > _SETTLED_US
        )


def _parent(seen: RecordSeen) -> str:
    """The uuid of its direct parent, where its parent-address ends with one."""
    name, _, uuid = (seen.parent_address or [""])[-1].partition(":")
    above = name.removesuffix("-uuid").upper().replace("-", "_")
    return uuid if name.endswith("-uuid") and contains(above, seen.cls) else ""


def _worth(reading: Reading) -> tuple[bool, bool, int]:
    """What the others lose without it: it goes on, we have paused in it, or it is long."""
    connection = reading.connection
    return connection.closed_us is None, bool(connection.pauses), len(reading.records)


def _resumed(connection: ConnectionSeen, at_us: int, *, backed_up: bool) -> None:
    if connection.paused_us is not None:
        connection.pauses.append(ReadingPause(connection.paused_us, at_us, backed_up))
        connection.paused_us = None


def _quiet(
    connection: ConnectionSeen, at_us: int, *, closed_by_peer: bool = False
) -> Iterator[QuietSeen]:
    """The quiet that ends now, if it was one that was seen as a whole."""
    since_us = connection.quiet_us
    if not connection.quiet_whole or at_us - since_us <= _SHORTEST_QUIET_US:
        return
    longest_us = max(connection.longest_us, at_us - connection.pong_us)
    yield QuietSeen(connection, since_us, at_us, longest_us, closed_by_peer)


# -- documents -----------------------------------------------------------------------------------


def _members(value: Object) -> dict[str, Any]:
    return {strip_module(name): inner for name, inner in value.items()}


def _objects(value: Any) -> list[dict[str, Any]]:
    items = value if isinstance(value, list) else [value]
    found = [_members(item) for item in items if isinstance(item, dict)]
    for item in found:
        for name in ("compacted-log-details", "connection-protocol-details"):
            if isinstance(item.get(name), dict):
                item[name] = _members(item[name])
    return found


def _reference(item: Object) -> str:
    inner = item.get("supported-stream-type")
    members = _members(inner) if isinstance(inner, dict) else {}
    return text_of(members.get("supported-stream-type-uuid"))


def _stream_context(document: Any, depth: int = 3) -> dict[str, Any] | None:
    """The content of stream-context in an answer; None where there is none."""
    if not isinstance(document, dict) or not depth:
        return None
    members = _members(document)
    if "available-stream" in members and "supported-stream-type" in members:
        return members
    for name in ("stream-context", "context", "data"):
        if (found := _stream_context(members.get(name), depth - 1)) is not None:
            return found
    return None


def _context(document: Any, path: str) -> Object | None:
    """The whole context in an answer; None for any other resource."""
    if strip_module(path.rstrip("/").rpartition("/")[2]) != "context":
        return None
    if not isinstance(document, dict):
        return None
    members = _members(document)
    inner = members.get("context", document)
    return inner if isinstance(inner, dict) and inner else None


def _entities(
    value: Any, cls: str, where: str, shown: dict[tuple[str, str], ShownEntity], depth: int = 0
) -> None:
    """Each entity with a uuid in a context, by class and uuid."""
    if isinstance(value, list):
        for item in value:
            _entities(item, cls, where, shown, depth)
        return
    if not isinstance(value, dict) or depth > _MAX_DEPTH:
        return
    uuid = value.get("uuid")
    if isinstance(uuid, str) and cls and cls != CONTEXT:
        parent = where.rpartition("=")[2]
        where = f"{where}/{cls}={uuid}"
        known = shown.get((cls, uuid)) or ShownEntity(where, plain_members(value))
        shown[cls, uuid] = known._replace(parents=known.parents | {parent})
    for name, inner in value.items():
        if isinstance(inner, dict | list):
            below = contained_class(name, cls)
            if below is not None:
                _entities(inner, below, where, shown, depth + 1)
            elif isinstance(inner, dict) and "uuid" not in inner:
                # A container such as cep-list belongs to the entity that it is in.
                _entities(inner, cls, where, shown, depth + 1)


def _records(content: bytes) -> list[Object] | None:
    """The log-records in a message; None where it is no JSON, or holds none."""
    try:
        document = _decode(content)
    except (msgspec.MsgspecError, RecursionError):
        return None
    for _ in range(3):
        if not isinstance(document, dict):
            break
        members = _members(document)
        if "log-record-header" in members:
            return [document]
        if "log-record" in members:
            document = members["log-record"]
            break
        inner = next((members[name] for name in _WRAPPERS if name in members), None)
        if inner is None:
            return None
        document = inner
    if isinstance(document, dict):
        document = [document]
    if not isinstance(document, list) or not document:
        return None
    found: list[Object] = [one for one in document if isinstance(one, dict)]
    headed = all("log-record-header" in _members(one) for one in found)
    return found if headed and len(found) == len(document) else None


def _record(
    item: Object, raw: bytes, at_us: int, connection: ConnectionSeen, ahead_us: int
) -> RecordSeen:
    members = _members(item)
    stated = members.get("log-record-header")
    header = _members(stated) if isinstance(stated, dict) else {}
    # The example of TR-548 6.3 closes its header too late.
    inner = members.get("log-record-body", header.get("log-record-body"))
    body = _members(inner) if isinstance(inner, dict) else None
    seen = RecordSeen(at_us, connection, ahead_us, raw, header, body)
    seen.stated = item
    seen.kind = short_identity(text_of(header.get("record-type")))
    seen.token = text_of(header.get("token"))
    seen.key = text_of(header.get("entity-key"))
    seen.append_us = time_us(text_of(header.get("log-append-time-stamp")) or None)
    seen.place = _place(header.get("full-log-record-offset-id"))
    if body is not None:
        seen.cls = class_named(text_of(body.get("record-content")))
        for name, value in body.items():
            if name not in _BODY and isinstance(value, dict):
                seen.content_member, seen.content = name, _members(value)
                break
    return seen


def _place(value: Any) -> Place | None:
    """Partition and offset; None where no offset is stated that is a whole number."""
    if not isinstance(value, list):
        return None
    offset: int | None = None
    others: list[str] = []
    for item in value:
        if not isinstance(item, dict):
            return None
        members = _members(item)
        name = text_of(members.get("value-name")).strip().lower()
        stated = members.get("value")
        if name in {"offset", "partition-offset", "sequence-number", "sequence number"}:
            if not str(stated).strip().isdecimal():
                return None
            offset = int(str(stated).strip()[:20])
        else:
            others.append(f"{name}={stated}")
    return None if offset is None else (" ".join(sorted(others)), offset)


def _detector_state(content: Object) -> str:
    for container, member in (
        ("alarm-condition-detector-detail", "alarm-detector-state"),
        ("detected-condition", ""),
    ):
        inner = content.get(container)
        if not isinstance(inner, dict):
            continue
        members = _members(inner)
        if member:
            return short_identity(text_of(members.get(member)))
        simple = members.get("simple-detector")
        if isinstance(simple, dict):
            return short_identity(text_of(_members(simple).get("simple-detector-state")))
    return ""
