"""The rules about single log-records: header, body, parent-address (TR-548 3.10)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from instep.conformance import HELD, NOTHING, Judge, Rule, RuleBroken, RuleLevel, Verdict
from instep_tapi.conformance.making import by_look, by_record, clauses
from instep_tapi.conformance.observations import (
    ConnectionSeen,
    FrameSeen,
    Object,
    RecordSeen,
    text_of,
)
from instep_tapi.conformance.streams import plain_identity
from instep_tapi.facts.containment import CONTAINED_CLASSES, LOCAL_CLASSES, contains
from instep_tapi.facts.names import (
    ANY_CLASS,
    CLASSES_WITHOUT_CONTAINER,
    CONDITION_DETECTOR,
    OBJECT_CLASSES,
    container_of,
    strip_module,
)
from instep_tapi.facts.stream_profile import TAPI_2_1_3
from instep_tapi.facts.times import time_us

__all__ = ["RULES"]

_CHAPTER: Final = "Records"
_TYPES_2_1_3: Final = {"RECORD_TYPE_CREATE_UPDATE", "RECORD_TYPE_DELETE", "RECORD_TYPE_TOMBSTONE"}
_TYPES_2_6: Final = _TYPES_2_1_3 | {
    "RECORD_TYPE_CREATE",
    "RECORD_TYPE_UPDATE",
    "RECORD_TYPE_CHANGE",
    "RECORD_TYPE_INFORMATION",
}
_SPREADS: Final = {f"SPREAD_{name}" for name in ("AT", "BEFORE", "AFTER", "BETWEEN")}
_PRECISIONS: Final = {
    f"SOURCE_PRECISION_{name}" for name in ("UNKNOWN", "FREE_RUNNING", "SYNCHRONIZED")
}
_AHEAD_US: Final = 60_000_000
_ZONE: Final = re.compile(r"(?:z|[+-]\d\d:?\d\d)(?:\[.*\])?", re.IGNORECASE | re.ASCII)
_IMPRECISE: Final = {"SOURCE_PRECISION_UNKNOWN", "SOURCE_PRECISION_FREE_RUNNING"}
_ENUMERATIONS: Final = {
    "event-source": {"RESOURCE_OPERATION", "MANAGEMENT_OPERATION", "UNKNOWN"},
    "perceived-severity": {"CRITICAL", "MAJOR", "MINOR", "WARNING", "CLEARED"},
    "service-affect": {"SERVICE_AFFECTING", "NOT_SERVICE_AFFECTING", "UNKNOWN"},
    "service-affecting": {"SERVICE_AFFECTING", "NOT_SERVICE_AFFECTING", "UNKNOWN"},
}
_ELEMENT: Final = re.compile(r"([a-z0-9-]+)-(uuid|local-id):\S.*")
_MARGIN_US: Final = 2_000_000
"""How far a time of ours and one of the provider's may be apart: a Date has whole seconds."""
_MAX_TOKENS: Final = 100_000
_K = TypeVar("_K")
_V = TypeVar("_V")
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


def _token(seen: RecordSeen) -> str:
    return "" if seen.token else "its header states no token"


def _append_time(seen: RecordSeen) -> str:
    stated = seen.header.get("log-append-time-stamp")
    if stated in (None, ""):
        return "its header states no log-append-time-stamp"
    return "" if seen.append_us is not None else f"log-append-time-stamp is {stated!r}, no time"


def _key(seen: RecordSeen) -> str:
    return "" if seen.key else "its header states no entity-key"


def _type(seen: RecordSeen) -> str:
    stated = seen.header.get("record-type")
    if stated in (None, ""):
        return "its header states no record-type"
    known = _TYPES_2_1_3 if seen.edition == TAPI_2_1_3 else _TYPES_2_6
    return "" if plain_identity(stated) in known else f"record-type is {stated!r}"


def _offset(seen: RecordSeen) -> str:
    stated = seen.header.get("full-log-record-offset-id")
    items = stated if isinstance(stated, list) else []
    named = [one for one in items if isinstance(one, dict) and one.get("value-name")]
    return "" if named else "full-log-record-offset-id has no entry"


def _event_time(seen: RecordSeen) -> Object | None:
    if seen.body is None:
        return None
    stated = seen.body.get("event-time-stamp")
    if not isinstance(stated, dict):
        return {}
    members = {strip_module(name): value for name, value in stated.items()}
    inner = members.get("approx-date-and-time")
    return inner if isinstance(inner, dict) else members


def _event_time_stated(seen: RecordSeen) -> str | None:
    if seen.body is None or seen.kind == "TOMBSTONE":
        return None
    stated = _event_time(seen) or {}
    time = stated.get("primary-time-stamp")
    if time in (None, ""):
        return "its body states no primary-time-stamp of the event"
    return "" if time_us(text_of(time)) is not None else f"primary-time-stamp is {time!r}, no time"


def _event_time_flat(seen: RecordSeen) -> str | None:
    stated = seen.body.get("event-time-stamp") if seen.body else None
    if not isinstance(stated, dict) or not stated:
        return None
    nested = any(strip_module(name) == "approx-date-and-time" for name in stated)
    return "event-time-stamp wraps approx-date-and-time" if nested else ""


def _event_time_names(seen: RecordSeen) -> str | None:
    stated = _event_time(seen) or {}
    found: str | None = None
    for name, known in (("spread", _SPREADS), ("source-precision", _PRECISIONS)):
        if name in stated:
            if plain_identity(stated[name]) not in known:
                return f"{name} is {stated[name]!r}, which the YANG does not name"
            found = ""
    return found


def _between(seen: RecordSeen) -> str | None:
    stated = _event_time(seen) or {}
    if plain_identity(stated.get("spread")) != "SPREAD_BETWEEN":
        return None
    begin = time_us(text_of(stated.get("start-time-stamp")) or None)
    end = time_us(text_of(stated.get("primary-time-stamp")) or None)
    if begin is None:
        return "a SPREAD_BETWEEN states no start-time-stamp"
    return "its start-time-stamp is after its end" if end is not None and begin > end else ""


def _zone(seen: RecordSeen) -> str | None:
    stated = _event_time(seen) or {}
    times = [(name, stated.get(name)) for name in ("primary-time-stamp", "start-time-stamp")]
    named = "log-append-time-stamp"
    found: str | None = None
    for name, value in ((named, seen.header.get(named)), *times):
        text = text_of(value).strip()
        if time_us(text) is not None:
            clock = text[8:]  # behind the date, which may have hyphens
            if not any(one.end() == len(clock) for one in _ZONE.finditer(clock)):
                return f"{name} is {text!r}, without a zone"
            found = ""
    return found


def _event_past(seen: RecordSeen) -> str | None:
    stated = _event_time(seen) or {}
    time = time_us(text_of(stated.get("primary-time-stamp")) or None)
    if time is None or plain_identity(stated.get("source-precision")) in _IMPRECISE:
        return None
    ahead = time - (seen.at_us + seen.ahead_us)
    return "" if ahead <= _AHEAD_US else f"it happened {ahead / 1e6:.0f} s after it was received"


def _enumerations(seen: RecordSeen) -> str | None:
    condition = seen.content.get("detected-condition") if seen.cls == CONDITION_DETECTOR else None
    detail = seen.content.get("alarm-condition-detector-detail")
    inner = [
        outer[name]
        for outer, name in ((condition, "detector-info"), (detail, "legacy-properties"))
        if isinstance(outer, dict) and isinstance(outer.get(name), dict)
    ]
    found: str | None = None
    for holder in (seen.body or {}, *(inner if seen.states else ())):
        for name, known in _ENUMERATIONS.items():
            if name in holder:
                if holder[name] not in known:
                    return f"{name} is {holder[name]!r}, which the YANG does not name"
                found = ""
    return found


def _ahead(seen: RecordSeen) -> str | None:
    if seen.append_us is None:
        return None
    ahead = seen.append_us - (seen.at_us + seen.ahead_us)
    if ahead <= _AHEAD_US:
        return ""
    return f"it was appended {ahead / 1e6:.0f} s after it was received"


def _content_named(seen: RecordSeen) -> str | None:
    if not seen.states:
        return None
    if seen.body is None:
        return f"a {seen.kind} without log-record-body"
    return "" if seen.cls else "its body states no record-content"


def _class_known(seen: RecordSeen) -> str | None:
    if not seen.cls or seen.edition != TAPI_2_1_3 or seen.cls == ANY_CLASS:
        return None
    stated = text_of(seen.body.get("record-content") if seen.body else "")
    return "" if stated in OBJECT_CLASSES else f"record-content is {stated!r}"


def _container(seen: RecordSeen) -> str | None:
    if not seen.states or not seen.cls or seen.cls in CLASSES_WITHOUT_CONTAINER | {ANY_CLASS}:
        return None
    if not seen.content_member:
        return f"a {seen.kind} of {seen.cls} states no entity"
    if seen.cls not in OBJECT_CLASSES or seen.edition != TAPI_2_1_3:
        return ""
    wanted = container_of(seen.cls)
    return "" if seen.content_member == wanted else f"{seen.content_member} in place of {wanted}"


def _identified(seen: RecordSeen) -> str | None:
    if (
        not seen.states
        or not seen.content_member
        or seen.cls in {CONDITION_DETECTOR, ANY_CLASS, ""}
    ):
        return None
    if seen.cls not in OBJECT_CLASSES or seen.content.get("uuid") or seen.content.get("local-id"):
        return None if seen.cls not in OBJECT_CLASSES else ""
    if seen.cls in LOCAL_CLASSES or not seen.content:
        return None
    return f"the {seen.cls} states no uuid"


def _address(seen: RecordSeen) -> list[str] | None:
    return seen.parent_address or None


def _parent_address(seen: RecordSeen) -> str | None:
    if not seen.states or seen.kind == "CHANGE" or seen.cls not in CONTAINED_CLASSES:
        return None
    return "" if _address(seen) else f"a {seen.cls} stands below another entity, which is not named"


def _address_form(seen: RecordSeen) -> str | None:
    elements = _address(seen)
    if elements is None:
        return None
    wrong = next((one for one in elements if not _ELEMENT.fullmatch(one)), None)
    return "" if wrong is None else f"an element of parent-address is {wrong!r}"


def _address_order(seen: RecordSeen) -> str | None:
    found = [_ELEMENT.fullmatch(one) for one in _address(seen) or ()]
    classes = [one[1].upper().replace("-", "_") for one in found if one]
    if len(classes) < 2 or any(cls not in OBJECT_CLASSES for cls in classes):
        return None
    upwards = [
        (above, below)
        for above, below in itertools.pairwise(classes)
        if contains(below, above) and not contains(above, below)
    ]
    return f"{upwards[0][1]} stands behind {upwards[0][0]}, which it contains" if upwards else ""


def _direct_parent(seen: RecordSeen) -> str | None:
    found = _ELEMENT.fullmatch((_address(seen) or [""])[-1])
    above = found[1].upper().replace("-", "_") if found else ""
    if not seen.states or seen.cls not in CONTAINED_CLASSES or above not in OBJECT_CLASSES:
        return None
    if _address_order(seen):
        return None
    if contains(above, seen.cls):
        return ""
    return f"the parent-address of a {seen.cls} ends with a {above}, which contains none"


def _frame(seen: FrameSeen) -> str:
    return "" if seen.records else "the message is no log-record in JSON, and no list of them"


def _remember(known: dict[_K, _V], name: _K, value: _V) -> None:
    """Keep a value under its name; where there are too many, the oldest one goes."""
    if name not in known and len(known) >= _MAX_TOKENS:
        del known[next(iter(known))]
    known[name] = value


class _Token:
    """Judges that a token names one record. What is a CHANGE for a client at the head of the log is
    a whole entity for one behind it (v3.2 5.2).
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str, bool], tuple[Any, RecordSeen]] = {}

    def __call__(self, seen: RecordSeen) -> Sequence[Verdict]:
        if not seen.token or not seen.connection.in_order:
            return NOTHING
        name = (seen.connection.stream, seen.token, seen.kind == "CHANGE")
        stated = b"" if seen.body is None else _encode(seen.body)
        what = (seen.key, seen.place, seen.append_us, hash(stated))
        known = self._seen.get(name)
        if known is None:
            _remember(self._seen, name, (what, seen))
            return HELD
        if known[0] == what:
            return HELD
        same = known[0][:-1] == what[:-1]
        reason = f"two records have the token {seen.token!r}"
        if same:
            reason = f"the record with the token {seen.token!r} came again with another body"
        return (RuleBroken(reason, (known[1].evidence, seen.evidence)),)


class _Offset:
    """Judges that two records which come after each other have offsets of their own."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, str], RecordSeen] = {}

    def __call__(self, seen: RecordSeen | ConnectionSeen) -> Sequence[Verdict]:
        if isinstance(seen, ConnectionSeen):
            for name in [name for name in self._last if name[0] == seen.id]:
                del self._last[name]
            return NOTHING
        if seen.place is None or not seen.token or not seen.connection.in_order:
            return NOTHING
        name = (seen.connection.id, seen.place[0])
        last, self._last[name] = self._last.get(name), seen
        if last is None or last.token == seen.token:
            return NOTHING
        if last.place != seen.place:
            return HELD
        reason = f"two records have the offset {seen.place[1]}"
        return (RuleBroken(reason, (last.evidence, seen.evidence)),)


class _Key:
    """Judges that an entity has one entity-key as long as it exists. An entity is what has one uuid
    at one place.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[Any, ...], RecordSeen] = {}
        self._names: dict[tuple[int, str], tuple[Any, ...]] = {}
        """What an entity-key stands for, by connection."""

    def __call__(self, seen: RecordSeen) -> Sequence[Verdict]:
        declared = seen.connection.declared
        type_ = declared.type if declared else None
        if not seen.key or type_ is None or type_.strategy == "CHANGE_ONLY":
            return NOTHING  # a part of an entity has a key of its own (3.8.2.2)
        uuid = text_of(seen.content.get("uuid")) or text_of(seen.content.get("detector-uuid"))
        name = (seen.connection.id, seen.cls, uuid.lower(), *(_address(seen) or ()))
        known = self._seen.get(name) if uuid and seen.cls else None
        verdict: Sequence[Verdict] = HELD if known else NOTHING
        if known is not None and known.key != seen.key:
            reason = f"{uuid} has the entity-key {known.key!r}, and then {seen.key!r}"
            verdict = (RuleBroken(reason, (known.evidence, seen.evidence)),)
        if seen.ends:
            self._seen.pop(self._names.pop((seen.connection.id, seen.key), ()), None)
            self._seen.pop(name, None)
        elif uuid and seen.cls:
            _remember(self._seen, name, seen)
            _remember(self._names, (seen.connection.id, seen.key), name)
        return verdict


class _Entity:
    """Judges that an entity-key names one entity as long as that exists."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, str], tuple[str, RecordSeen]] = {}

    def __call__(self, seen: RecordSeen) -> Sequence[Verdict]:
        if not seen.key:
            return NOTHING
        name = (seen.connection.id, seen.key)
        if seen.ends:
            self._seen.pop(name, None)
            return NOTHING
        uuid = text_of(seen.content.get("uuid")) or text_of(seen.content.get("detector-native-id"))
        if not seen.states or not uuid:
            return NOTHING
        known = self._seen.get(name)
        if known is None or known[0].lower() == uuid.lower():
            _remember(self._seen, name, known or (uuid, seen))
            return HELD
        reason = f"the entity-key {seen.key!r} stands for {known[0]}, and then for {uuid}"
        return (RuleBroken(reason, (known[1].evidence, seen.evidence)),)


class _Lives:
    """Judges that a CREATE is of an entity that does not exist: one that did was ended before, and
    no record between is missing.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[int, str], int] = {}
        """The highest offset, by connection and partition …"""
        self._alive: dict[tuple[int, str], dict[str, RecordSeen]] = {}
        """… and what exists by the records in front of it, without a gap, by entity-key."""

    def __call__(self, seen: RecordSeen | ConnectionSeen) -> Sequence[Verdict]:
        if isinstance(seen, ConnectionSeen):
            for name in [name for name in self._last if name[0] == seen.id]:
                del self._last[name], self._alive[name]
            return NOTHING
        if seen.place is None or not seen.key or not seen.connection.in_order:
            return NOTHING
        partition, offset = seen.place
        name = (seen.connection.id, partition)
        last = self._last.get(name)
        if last is not None and offset <= last:
            return NOTHING  # it comes again
        alive = self._alive.setdefault(name, {})
        if offset - 1 != last:
            alive.clear()
        self._last[name] = offset
        before = alive.get(seen.key)
        if seen.ends:
            alive.pop(seen.key, None)
        elif seen.states:
            _remember(alive, seen.key, seen)
        if seen.kind != "CREATE":
            return NOTHING
        if before is None:
            return HELD
        reason = f"{seen.key} is created, and it was there: no record between is missing"
        return (RuleBroken(reason, (before.evidence, seen.evidence)),)


class _Change:
    """Judges that a client gets a CHANGE only of an entity that it has got whole. Of what changes
    after it has connected, the whole record may be compacted before it comes to it.
    """

    def __init__(self) -> None:
        self._whole: dict[int, set[str]] = {}

    def __call__(self, seen: RecordSeen | ConnectionSeen) -> Sequence[Verdict]:
        if isinstance(seen, ConnectionSeen):
            self._whole.pop(seen.id, None)
            return NOTHING
        connection = seen.connection
        if not seen.key or connection.start or not connection.whole:
            return NOTHING
        whole = self._whole.setdefault(connection.id, set())
        if seen.kind != "CHANGE":
            if seen.states and len(whole) < _MAX_TOKENS:
                whole.add(seen.key)
            return NOTHING
        if seen.key in whole or len(whole) >= _MAX_TOKENS:
            return HELD
        opened_us = connection.opened_us + seen.ahead_us
        if seen.append_us is None or seen.append_us > opened_us - _MARGIN_US:
            return NOTHING
        reason = f"a CHANGE of {seen.key}, of which this connection has brought no whole record"
        return (RuleBroken(reason, (connection.evidence, seen.evidence)),)


class _Latest:
    """Judges that `start_from=latest` does not begin with what was appended long before. The
    latest record itself may come first.
    """

    def __init__(self) -> None:
        self._first: dict[int, RecordSeen] = {}

    def __call__(self, seen: RecordSeen | ConnectionSeen) -> Sequence[Verdict]:
        if isinstance(seen, ConnectionSeen):
            self._first.pop(seen.id, None)
            return NOTHING
        connection = seen.connection
        if connection.start != "latest" or not connection.in_order or seen.append_us is None:
            return NOTHING
        if seen.append_us >= connection.opened_us + seen.ahead_us - _AHEAD_US:
            return HELD
        first = self._first.setdefault(connection.id, seen)
        if first.token == seen.token or first.place == seen.place:
            return NOTHING
        reason = "a connection from the latest record began with older ones"
        return (RuleBroken(reason, (connection.evidence, first.evidence, seen.evidence)),)


def _rule(id_: str, look: Callable[[RecordSeen], str | None] | None = None, **given: Any) -> Rule:
    given.setdefault("chapter", _CHAPTER)
    given.setdefault("sees", (RecordSeen,))
    given.setdefault("provoke", "Let something change in the network.")
    make: Callable[[], Judge] = by_record(look) if look else given.pop("make_judge")
    return Rule(id=f"tapi-{id_}", make_judge=make, **given)


RULES: Final[tuple[Rule, ...]] = (
    _rule(
        "message-json",
        text="Each message is JSON with log-records in it.",
        clauses=clauses("5.10, 6.3", "7.10"),
        why="A message that cannot be read is a change that is lost. The client's state is wrong"
        " from there on, and nobody can say in what.",
        right='{"log-record-header": {…}, "log-record-body": {…}}',
        wrong='{"log-record-header": {"token": "a',
        sees=(FrameSeen,),
        make_judge=by_look(_frame),
    ),
    _rule(
        "token",
        _token,
        text="The header of each record states its token.",
        clauses=clauses("3.10", "3.10.1"),
        why="A client goes on behind the token of the last record that it stored. Without one it"
        " must read the whole log after each loss of the connection.",
        right='"token": "62234255_0:-1379579382:AAAAAQAAhw4="',
        wrong="no member token",
    ),
    _rule(
        "token-one-record",
        text="A token names one record of the stream, which says the same each time.",
        clauses=clauses("3.10", "3.10.1"),
        why="Behind which of two records is the client to go on? What lies between them is lost,"
        " or comes twice.",
        right="each record has a token of its own; a copy of a record has the same",
        wrong="two entities with one token; a record with another body the next time",
        make_judge=_Token,
    ),
    _rule(
        "append-time",
        _append_time,
        text="The header of each record states when it was appended to the log.",
        clauses=clauses("3.10", "3.10.1"),
        why="How far a client is behind, and whether a sweep is due, follow from this time alone.",
        right='"log-append-time-stamp": "2021-04-28T14:14:28.780Z"',
        wrong='"log-append-time-stamp": "unknown"',
    ),
    _rule(
        "append-time-past",
        _ahead,
        text="No record was appended in the future.",
        clauses=clauses("3.11.1", "3.11.1", RuleLevel.SHOULD),
        why="A record from the future wins over all that come before that time: the entity stands"
        " still in the client's store.",
        right="a time that is not after the provider's own Date",
        wrong="a time that is an hour ahead",
    ),
    _rule(
        "entity-key",
        _key,
        text="The header of each record states the entity-key.",
        clauses=clauses("3.10", "3.10.1"),
        why="A TOMBSTONE has nothing else: without it nobody knows what has ended.",
        right='"entity-key": "3669276387587255710"',
        wrong="no member entity-key",
    ),
    _rule(
        "key-one-entity",
        text="An entity-key stands for one entity for the whole life of that.",
        clauses=clauses("3.10", "3.10.1"),
        why="Compaction removes all but the last record of a key. Of two entities that share one,"
        " the log forgets the first.",
        right="one uuid under one entity-key until its TOMBSTONE",
        wrong="two links under one entity-key",
        make_judge=_Entity,
    ),
    _rule(
        "entity-one-key",
        text="An entity has one entity-key for its whole life, and it ends under that.",
        clauses=clauses("ST-1.1", "ST-1.1"),
        why="Under another key it is another entity: the client has it twice, and the end of one"
        " leaves the other in its store for ever.",
        right="one entity-key in the CREATE_UPDATE, the DELETE and the TOMBSTONE of a uuid",
        wrong="a CREATE_UPDATE with the key 17, and a DELETE of the same uuid with the key 18",
        make_judge=_Key,
    ),
    _rule(
        "record-type",
        _type,
        text="record-type is an identity that the YANG of the edition names.",
        clauses=clauses("3.10 (YANG)", "3.10.1 (YANG)"),
        why="A strict client takes no record of a type that it does not know: a deletion that is"
        " spelled otherwise leaves the entity in its store.",
        right='"record-type": "RECORD_TYPE_DELETE"',
        wrong='"record-type": "DELETE"',
    ),
    _rule(
        "offset",
        _offset,
        text="full-log-record-offset-id has at least one entry.",
        clauses=clauses("3.10 (YANG, min-elements 1)", "3.10.1"),
        why="Tokens cannot be compared. Only the offset shows whether records are missing between"
        " two that came, and whether a stream goes on or began anew.",
        right='[{"value-name": "partition", "value": "0"}, {"value-name": "offset", "value": "9"}]',
        wrong='"full-log-record-offset-id": []',
    ),
    _rule(
        "offset-one-record",
        text="A record has an offset of its own in its partition.",
        clauses=clauses("3.10", "3.10.1"),
        why="A client that looks for gaps takes the second record for a copy of the first, or the"
        " next one for a gap.",
        right="offsets 5 and 6 for a DELETE and its TOMBSTONE",
        wrong="offset 5 for both",
        sees=(RecordSeen, ConnectionSeen),
        make_judge=_Offset,
    ),
    _rule(
        "record-content",
        _content_named,
        text="The body of a record that states an entity names its class.",
        clauses=clauses("3.10", "3.10.2"),
        why="Without the class nobody knows which member of the body is the entity.",
        right='"record-content": "LINK"',
        wrong="no member record-content",
    ),
    _rule(
        "class-known",
        _class_known,
        text="record-content is a class that the YANG names.",
        clauses=clauses("3.10 (YANG)", ""),
        why="An entity of an unknown class can be kept, but nothing refers to it.",
        right='"CONNECTION_END_POINT"',
        wrong='"CEP"',
    ),
    _rule(
        "entity-stated",
        _container,
        text="A record that states an entity holds it in the member of its class.",
        clauses=clauses("3.10", "3.10.2"),
        why="A whole entity that is not there empties what the client has stored of it.",
        right='"record-content": "LINK", "link": {…}',
        wrong='"record-content": "LINK" alone',
    ),
    _rule(
        "entity-identified",
        _identified,
        text="An entity of a global class states its uuid.",
        clauses=clauses("3.10.1", "3.10.3"),
        why="Alarms, links and services refer to it by this uuid. Without it none of them can be"
        " resolved.",
        right='"link": {"uuid": "6317c7ed-…"}',
        wrong='"link": {"operational-state": "ENABLED"}',
    ),
    _rule(
        "event-time",
        _event_time_stated,
        text="The body states when the event happened.",
        clauses=clauses("3.10", "3.10.2"),
        why="What was first, the cause or the effect? The append time says only when it was told.",
        right='"event-time-stamp": {"primary-time-stamp": "2021-04-28T14:14:20.000Z"}',
        wrong="no event-time-stamp",
    ),
    _rule(
        "event-time-flat",
        _event_time_flat,
        text="event-time-stamp states its members itself, without a container between.",
        clauses=clauses("3.10 (YANG)", "3.10.2 (YANG)", RuleLevel.SHOULD),
        why="The example of TR-548 6.3 has a container here that the YANG does not have. A client"
        " that is made from the YANG finds no time.",
        right='{"primary-time-stamp": …}',
        wrong='{"approx-date-and-time": {"primary-time-stamp": …}}',
    ),
    _rule(
        "event-time-names",
        _event_time_names,
        text="spread and source-precision are identities that the YANG names.",
        clauses=clauses("3.10 (YANG)", "3.10.2 (YANG)"),
        why="An unknown spread makes a time that is a guess look like one that is exact.",
        right='"spread": "SPREAD_BEFORE"',
        wrong='"spread": "before"',
    ),
    _rule(
        "time-zone",
        _zone,
        text="Times state their zone.",
        clauses=clauses(
            "3.10 (YANG, date-and-time)", "3.10 (YANG, date-and-time)", RuleLevel.SHOULD
        ),
        why="A time without zone is read as UTC: where it is local, all is hours early or late, and"
        " an hour is there twice each autumn.",
        right='"2021-04-28T14:14:20.000Z", or "…+02:00"',
        wrong='"2021-04-28T14:14:20.000"',
    ),
    _rule(
        "event-time-past",
        _event_past,
        text="No event happened in the future.",
        clauses=clauses("3.11.1", "3.11.1", RuleLevel.SHOULD),
        why="An alarm of tomorrow is not found by who looks for what happened today.",
        right="a primary-time-stamp that is not after the provider's own Date",
        wrong="one that is an hour ahead, of a source that is SYNCHRONIZED",
    ),
    _rule(
        "enumerations",
        _enumerations,
        text="event-source, severity and service impact are values that the YANG names.",
        clauses=clauses("3.10, 4.5 (YANG)", "3.10.2, 4.5.2 (YANG)"),
        why="An alarm list sorts and filters by them: an unknown severity is at the end, or not"
        " there at all.",
        right='"perceived-severity": "MAJOR"',
        wrong='"perceived-severity": "HIGH"',
    ),
    _rule(
        "event-time-between",
        _between,
        text="A time with SPREAD_BETWEEN has a beginning, and that is not after its end.",
        clauses=clauses("4.8 (YANG)", "4.8 (YANG)"),
        provoke="Let a source report an event of which it knows two bounds of time.",
        why="An interval without a beginning is no interval: durations that follow are wrong.",
        right='"start-time-stamp" before "primary-time-stamp"',
        wrong="no start-time-stamp",
    ),
    _rule(
        "parent-address",
        _parent_address,
        text="An entity that stands below another one states the address of its parent.",
        clauses=clauses("3.10.1", "3.10.3"),
        why="A record states no list of its parent. Without the address the entity hangs in the"
        " air: no node has the port, no port the connection.",
        right='"parent-address": ["topology-uuid:4e53…", "node-uuid:7f65…"]',
        wrong="a NODE_EDGE_POINT without parent-address",
    ),
    _rule(
        "parent-address-form",
        _address_form,
        text="Each element of parent-address is the class, -uuid or -local-id, a colon and the id.",
        clauses=clauses("3.10", "3.10.3", RuleLevel.SHOULD, RuleLevel.MUST),
        why="A client that reads the class from the element cannot find the parent otherwise.",
        right='"node-edge-point-uuid:e35a31b2-…"',
        wrong='"/nep/e35a31b2-…"',
    ),
    _rule(
        "parent-address-order",
        _address_order,
        text="parent-address goes from the highest entity to the lowest.",
        clauses=clauses("3.10", "3.10.3", RuleLevel.SHOULD, RuleLevel.MUST),
        why="The last element is the parent. In another order the client puts a port below a"
        " topology.",
        right='["topology-uuid:…", "node-uuid:…"]',
        wrong='["node-uuid:…", "topology-uuid:…"]',
    ),
    _rule(
        "parent-address-direct",
        _direct_parent,
        text="parent-address ends with the direct parent.",
        clauses=clauses("3.10, 3.10.1", "3.10.3"),
        why="The client cannot put the entity into the list that it belongs to.",
        right='NODE_EDGE_POINT: ["topology-uuid:…", "node-uuid:…"]',
        wrong='NODE_EDGE_POINT: ["topology-uuid:…"]',
    ),
    _rule(
        "create-new",
        text="A CREATE is of an entity that did not exist before.",
        clauses=clauses("", "5.2"),
        provoke="Let an entity change.",
        why="A client that counts what was created, or tells others, does so twice.",
        right="CREATE of k, UPDATE of k, DELETE of k, TOMBSTONE of k, CREATE of k",
        wrong="CREATE of k, CREATE of k",
        sees=(RecordSeen, ConnectionSeen),
        make_judge=_Lives,
    ),
    _rule(
        "change-known",
        text="A client gets a CHANGE only of an entity that it has got whole.",
        clauses=clauses("", "5.2"),
        provoke="Follow a CHANGE_ONLY stream from its oldest record, while something changes.",
        why="A part of an entity that the client does not have cannot be stored: it must align"
        " anew.",
        right="UPDATE of k, CHANGE of k",
        wrong="CHANGE of k as the first record of it on a connection without token",
        sees=(RecordSeen, ConnectionSeen),
        make_judge=_Change,
    ),
    _rule(
        "start-latest",
        text="start_from=latest does not begin with old records.",
        clauses=clauses("5.10.1", "7.10.1", RuleLevel.SHOULD),
        provoke="Let a consumer follow a TRUNCATED stream: it begins at the latest record.",
        why="A client that reads current state by GET first gets the whole log for nothing.",
        right="the next record that is appended, or the last one before",
        wrong="the oldest record",
        sees=(RecordSeen, ConnectionSeen),
        make_judge=_Latest,
    ),
)
