"""The rules about supported stream types and available streams (TR-548 3.7, 4.3)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from instep.conformance import HELD, NOTHING, Rule, RuleBroken, RuleLevel, Verdict
from instep_tapi.conformance.making import by_look, clauses, listed
from instep_tapi.conformance.observations import (
    DeclaredStream,
    DeclaredType,
    RecordSeen,
    StreamsSeen,
    TypeSeen,
    text_of,
)
from instep_tapi.facts.names import ANY_CLASS, CONDITION_DETECTOR, OBJECT_CLASSES
from instep_tapi.facts.stream_profile import TAPI_2_1_3

__all__ = ["RULES"]

_CHAPTER: Final = "Streams and their types"
_UNDER_WAY_US: Final = 2_000_000
_PAUSED_TIMES: Final = 3
_MINUTES: Final = re.compile(r"\d+(\.\d+)?")
_IDENTITIES: Final = {
    "log-storage-strategy": {
        f"LOG_STORAGE_STRATEGY_{name}"
        for name in (
            "COMPACTED",
            "TRUNCATED",
            "FULL_HISTORY",
            "FULL_HISTORY_WITH_PERIODIC_BASELINE",
        )
    },
    "log-record-strategy": {
        f"LOG_RECORD_STRATEGY_{name}"
        for name in (
            "WHOLE_ENTITY_ON_CHANGE",
            "CHANGE_ONLY",
            "WHOLE_ENTITY_PERIODIC",
            "WHOLE_ENTITY",
        )
    },
    "stream-state": {
        f"STREAM_STATE_{name}" for name in ("ALIGNING", "ACTIVE", "PAUSED", "TERMINATED")
    },
}


def plain_identity(value: object) -> str:
    """An identity without the module that it may have (RFC 7951 6.8); as it is, where that is no
    module of TAPI.
    """
    text = text_of(value)
    module, colon, name = text.partition(":")
    return name if colon and module.startswith("tapi-") else text


def _type_mandatory(seen: TypeSeen) -> str | None:
    members = seen.type.members
    if seen.edition != TAPI_2_1_3:
        return "" if seen.type.uuid else "it has no uuid"
    names = ("stream-type-name", "record-retention", "log-storage-strategy", "log-record-strategy")
    lacking = [name for name in names if members.get(name) in (None, "")]
    if not (members.get("record-content") or members.get("stream-type-content")):
        lacking.append("record-content")
    return f"it does not state {listed(lacking)}" if lacking else ""


def _identities(members: Mapping[str, Any], *names: str) -> str | None:
    stated = [name for name in names if name in members]
    for name in stated:
        if plain_identity(members[name]) not in _IDENTITIES[name]:
            return f"{name} is {members[name]!r}, which the YANG does not name"
    return "" if stated else None


def _type_classes(seen: TypeSeen) -> str | None:
    odd = sorted(one for one in seen.type.classes if one not in OBJECT_CLASSES | {ANY_CLASS})
    if not seen.type.classes:
        return None
    return f"it declares {listed(odd)}, which the YANG does not name" if odd else ""


def _compacted_details(seen: TypeSeen) -> str | None:
    if seen.type.storage != "COMPACTED":
        return None
    names = ("tombstone-retention", "compaction-delay")
    lacking = [name for name in names if seen.type.details.get(name) in (None, "")]
    return f"compacted-log-details state no {listed(lacking)}" if lacking else ""


def _periods(seen: TypeSeen) -> str | None:
    stated = [
        (name, seen.type.details[name])
        for name in ("tombstone-retention", "compaction-delay")
        if name in seen.type.details
    ]
    for name, value in stated:
        if not isinstance(value, str) or not (value == "FOREVER" or _MINUTES.fullmatch(value)):
            return f"{name} is {value!r}, no number of minutes in a text"
    return "" if stated else None


def _retention_above_delay(seen: TypeSeen) -> str | None:
    delay, retention = seen.type.delay_s, seen.type.retention_s
    if seen.type.storage != "COMPACTED" or delay is None or retention is None:
        return None
    if retention >= delay:
        return ""
    return f"tombstones are kept {retention / 60:g} min, and the compaction delay is {delay / 60:g}"


def _forever(seen: TypeSeen) -> str | None:
    if seen.type.storage != "COMPACTED" or "record-retention" not in seen.type.members:
        return None
    stated = seen.type.members["record-retention"]
    return "" if stated == "FOREVER" else f"record-retention is {stated!r}, and not FOREVER"


def _alarms_forever(seen: TypeSeen) -> str | None:
    return _forever(seen) if CONDITION_DETECTOR in seen.type.classes else None


class _Streams:
    """Judges a stream context where it says something new."""

    def __call__(self, seen: StreamsSeen) -> Sequence[Verdict]:
        if not seen.changed:
            return NOTHING
        found: list[Verdict] = []
        for wrong in self.look(seen):
            if wrong is not None:
                found += (RuleBroken(wrong, (seen.evidence,)),) if wrong else HELD
        return found

    def look(self, seen: StreamsSeen) -> list[str | None]:
        raise NotImplementedError


class _EachStream(_Streams):
    def look(self, seen: StreamsSeen) -> list[str | None]:
        return [
            wrong and f"stream {stream.name}: {wrong}"
            for stream in seen.streams
            for wrong in (self.look_at(stream),)
        ]

    def look_at(self, stream: DeclaredStream) -> str | None:
        raise NotImplementedError


class _StreamMandatory(_EachStream):
    def look_at(self, stream: DeclaredStream) -> str | None:
        names = ["connection-address"]
        if stream.edition == TAPI_2_1_3:
            names += ["stream-state", "stream-id", "connection-protocol"]
        lacking = [name for name in names if stream.members.get(name) in (None, "", [])]
        if not stream.uuid:
            lacking.append("uuid")
        if not stream.reference:
            lacking.append("supported-stream-type")
        return f"it does not state {listed(lacking)}" if lacking else ""


class _Reference(_EachStream):
    def look_at(self, stream: DeclaredStream) -> str | None:
        if not stream.reference:
            return None
        return "" if stream.type else f"no supported-stream-type has the uuid {stream.reference}"


class _State(_EachStream):
    def look_at(self, stream: DeclaredStream) -> str | None:
        return _identities(stream.members, "stream-state")


class _Protocol(_EachStream):
    def look_at(self, stream: DeclaredStream) -> str | None:
        stated = stream.members.get("connection-protocol")
        details = stream.type.members.get("connection-protocol-details") if stream.type else None
        allowed = details.get("allowed-connection-protocols") if isinstance(details, dict) else None
        if not isinstance(stated, str) or not isinstance(allowed, list) or not allowed:
            return None
        if plain_identity(stated) in map(plain_identity, allowed):
            return ""
        return f"{stated!r} is none of the allowed protocols, {allowed!r}"


class _Unique(_Streams):
    def look(self, seen: StreamsSeen) -> list[str | None]:
        found: list[str | None] = []
        for name, items in (
            ("available-stream", [one.uuid for one in seen.streams]),
            ("supported-stream-type", [one.uuid for one in seen.types]),
        ):
            twice = [uuid for uuid, count in Counter(items).items() if count > 1]
            if items:
                found.append(f"{len(twice)} uuids of {name} come twice" if twice else "")
        return found


class _CompactedOffered(_Streams):
    def look(self, seen: StreamsSeen) -> list[str | None]:
        stating = [one for one in seen.types if _states_entities(one)]
        if not stating:
            return []
        if any(one.storage == "COMPACTED" for one in stating):
            return [""]
        return ["no stream type of entities or alarms is COMPACTED"]


def _states_entities(type_: DeclaredType) -> bool:
    measured = {"PM_HISTORY_DATA", "HISTORY_DATA", "MEASUREMENT_DETAILS", "PM_CURRENT_DATA"}
    return not type_.classes or not type_.classes <= measured


class _AlarmsCompacted(_Streams):
    def look(self, seen: StreamsSeen) -> list[str | None]:
        of_alarms = [one for one in seen.types if CONDITION_DETECTOR in one.classes]
        if not of_alarms:
            return []
        if any(one.storage == "COMPACTED" for one in of_alarms):
            return [""]
        name, storage = of_alarms[0].name, of_alarms[0].storage
        return [f"alarms are in {name}, which is {storage or 'of no stated strategy'}"]


class _Paused:
    """Judges records that came while a stream was PAUSED. Between two readings of its state it may
    have been ACTIVE, so records must have come between several in a row.
    """

    def __init__(self) -> None:
        self._since_us: dict[str, int] = {}
        self._records: dict[str, RecordSeen] = {}
        self._in_a_row: dict[str, int] = {}

    def __call__(self, seen: StreamsSeen | RecordSeen) -> Sequence[Verdict]:
        if isinstance(seen, RecordSeen):
            since = self._since_us.get(seen.connection.stream)
            # What was appended before it was paused may have been under way.
            if since is not None and (seen.append_us or 0) - seen.ahead_us > since + _UNDER_WAY_US:
                self._records.setdefault(seen.connection.stream, seen)
            return NOTHING
        found: list[Verdict] = []
        for stream in seen.streams:
            record = self._records.pop(stream.uuid, None)
            if stream.state != "PAUSED":
                self._since_us.pop(stream.uuid, None)
                self._in_a_row.pop(stream.uuid, None)
            elif stream.uuid not in self._since_us:
                self._since_us[stream.uuid] = seen.at_us
            elif record is None:
                self._in_a_row.pop(stream.uuid, None)
                found += HELD
            else:
                count = self._in_a_row[stream.uuid] = self._in_a_row.get(stream.uuid, 0) + 1
                if count >= _PAUSED_TIMES:
                    reason = f"{stream.name} was PAUSED {count + 1} times in a row; records came"
                    found.append(RuleBroken(reason, (record.evidence, seen.evidence)))
        return found


class _Declared:
    """Judges whether a record is of a class that its stream declares."""

    def __call__(self, seen: RecordSeen) -> Sequence[Verdict]:
        declared = seen.connection.declared
        if not seen.states or not seen.cls or declared is None or declared.type is None:
            return NOTHING
        classes = declared.type.classes
        if seen.cls not in OBJECT_CLASSES:
            return NOTHING  # another rule is about unknown classes
        if not classes or ANY_CLASS in classes or seen.cls in classes:
            return HELD
        reason = f"a record of {seen.cls} in stream {declared.name}, which does not declare it"
        return (RuleBroken(reason, (seen.evidence,)),)


_COMPACTED_FIRST: Final = (
    "A client that follows a log without these figures cannot tell whether its place is still in"
    " the log, so it reads everything again after each absence."
)


def _rule(id_: str, **given: Any) -> Rule:
    given.setdefault("provoke", "Let the provider offer such a stream; it is read at the start.")
    return Rule(id=f"tapi-{id_}", chapter=_CHAPTER, **given)


RULES: Final[tuple[Rule, ...]] = (
    _rule(
        "type-mandatory",
        text="A supported-stream-type states its name, retention, classes and both strategies.",
        clauses=clauses("3.7.1", "3.7.1"),
        why="A client chooses its way of alignment by these members. Without them it must guess"
        " whether the log alone gives state, and a wrong guess loses or keeps what is gone.",
        right='"log-storage-strategy": "LOG_STORAGE_STRATEGY_COMPACTED"',
        wrong="no member log-storage-strategy",
        sees=(TypeSeen,),
        make_judge=by_look(_type_mandatory),
    ),
    _rule(
        "type-strategies",
        text="log-storage-strategy and log-record-strategy are identities that the YANG names.",
        clauses=clauses("3.8 (YANG)", "3.8 (YANG)"),
        why="A strategy that is spelled otherwise is unknown to a strict client: it does not"
        " follow the stream.",
        right='"LOG_STORAGE_STRATEGY_COMPACTED" or "tapi-streaming:LOG_STORAGE_STRATEGY_COMPACTED"',
        wrong='"COMPACTED"',
        sees=(TypeSeen,),
        make_judge=by_look(
            lambda seen: _identities(
                seen.type.members, "log-storage-strategy", "log-record-strategy"
            )
        ),
    ),
    _rule(
        "type-classes",
        text="A supported-stream-type declares classes that the YANG names.",
        clauses=clauses("3.7.1 (YANG)", ""),
        why="A client chooses streams by their classes. One that it does not know is followed by"
        " nobody.",
        right='"record-content": ["NODE_EDGE_POINT"]',
        wrong='"record-content": ["PORT"]',
        sees=(TypeSeen,),
        make_judge=by_look(_type_classes),
    ),
    _rule(
        "compacted-details",
        text="A type with a COMPACTED log states tombstone-retention and compaction-delay.",
        clauses=clauses("3.7.1", "3.7.1"),
        why=_COMPACTED_FIRST,
        right='"compacted-log-details": {"tombstone-retention": "240", "compaction-delay": "10"}',
        wrong="a COMPACTED type without compacted-log-details",
        sees=(TypeSeen,),
        make_judge=by_look(_compacted_details),
    ),
    _rule(
        "periods-in-minutes",
        text="tombstone-retention and compaction-delay are minutes, or the key word FOREVER.",
        clauses=clauses("3.7.1 (YANG)", "3.7.1 (YANG)", RuleLevel.SHOULD),
        why="A period in another unit is read sixty times too long or too short: tokens are used"
        " that the log has forgotten.",
        right='"tombstone-retention": "240"',
        wrong='"tombstone-retention": "4 hours"',
        sees=(TypeSeen,),
        make_judge=by_look(_periods),
    ),
    _rule(
        "retention-above-delay",
        text="tombstone-retention is at least as long as compaction-delay.",
        clauses=clauses("4.3", "4.3"),
        why="A tombstone that goes before the records it ends leaves entities in the log that are"
        " gone: a new client takes them for real.",
        right='"tombstone-retention": "240", "compaction-delay": "10"',
        wrong='"tombstone-retention": "5", "compaction-delay": "10"',
        sees=(TypeSeen,),
        make_judge=by_look(_retention_above_delay),
    ),
    _rule(
        "compacted-forever",
        text="The record-retention of a COMPACTED log is FOREVER.",
        clauses=clauses("3.7.1", "3.7.1", RuleLevel.SHOULD),
        why="A log that forgets entities which have not changed for long cannot give state alone:"
        " the client must read current state by GET, too.",
        right='"record-retention": "FOREVER"',
        wrong='"record-retention": "1440"',
        sees=(TypeSeen,),
        make_judge=by_look(_forever),
    ),
    _rule(
        "alarms-forever",
        text="The log of alarms keeps the last record of each alarm for ever.",
        clauses=clauses("4.3", "4.3"),
        why="An alarm that stands for longer than the retention vanishes from the log: a client"
        " that aligns anew does not know of it.",
        right='"record-retention": "FOREVER"',
        wrong='"record-retention": "1440"',
        sees=(TypeSeen,),
        make_judge=by_look(_alarms_forever),
    ),
    _rule(
        "compacted-offered",
        text="At least one stream type of entities or alarms is COMPACTED.",
        clauses=clauses("3.8.1.1", "3.8.1.1"),
        why="Only a compacted log gives state alone. Without one, each client must put a GET and"
        " a stream together, and races between both are its problem.",
        right="one type with LOG_STORAGE_STRATEGY_COMPACTED",
        wrong="TRUNCATED types only",
        sees=(StreamsSeen,),
        make_judge=_CompactedOffered,
    ),
    _rule(
        "alarms-compacted",
        text="The stream of alarms is fed from a compacted log.",
        clauses=clauses("4.3", "4.3"),
        why="TAPI 2.1.3 shows standing alarms by no GET. From a truncated log nobody learns the"
        " alarms that were raised before it begins.",
        right="CONDITION_DETECTOR in a COMPACTED type",
        wrong="CONDITION_DETECTOR in a TRUNCATED type alone",
        sees=(StreamsSeen,),
        make_judge=_AlarmsCompacted,
    ),
    _rule(
        "stream-mandatory",
        text="An available-stream states its address, state, type, id and protocol.",
        clauses=clauses("3.7.2", "3.7.2"),
        why="Without an address or a protocol nobody can connect; without a state nobody knows"
        " whether silence is meant.",
        right='"connection-address": "wss://…", "stream-state": "STREAM_STATE_ACTIVE", …',
        wrong="no stream-state",
        sees=(StreamsSeen,),
        make_judge=_StreamMandatory,
    ),
    _rule(
        "type-reference",
        text="The type of an available-stream is one of the supported-stream-types.",
        clauses=clauses("3.7.2 (YANG, leafref)", "3.7.2 (YANG, leafref)"),
        why="A stream whose type is not there has unknown classes and an unknown log.",
        right="supported-stream-type-uuid names an entry of supported-stream-type",
        wrong="a uuid that no entry has",
        sees=(StreamsSeen,),
        make_judge=_Reference,
    ),
    _rule(
        "stream-state",
        text="stream-state is one of the four identities of the YANG.",
        clauses=clauses("3.7.2 (YANG)", "3.7.2 (YANG)"),
        why="A client follows ACTIVE streams, and waits for others. It cannot do either with a"
        " state that nobody defines.",
        right='"STREAM_STATE_ACTIVE"',
        wrong='"RUNNING"',
        sees=(StreamsSeen,),
        make_judge=_State,
    ),
    _rule(
        "protocol-allowed",
        text="The protocol of a stream is one that its type allows.",
        clauses=clauses("3.7.2", "3.7.2"),
        why="A client that chose its type by the protocols finds a stream that it cannot read.",
        right='"connection-protocol": "websockets", allowed: ["websockets"]',
        wrong='"connection-protocol": "sse", allowed: ["websockets"]',
        sees=(StreamsSeen,),
        make_judge=_Protocol,
    ),
    _rule(
        "uuids-unique",
        text="No two streams, and no two stream types, have one uuid.",
        clauses=clauses("3.7 (YANG, list key)", "3.7 (YANG, list key)"),
        why="Of two entries with one key a client sees one: the other's records are never read.",
        right="a uuid for each entry",
        wrong="two entries of available-stream with one uuid",
        sees=(StreamsSeen,),
        make_judge=_Unique,
    ),
    _rule(
        "class-declared",
        text="A stream carries only classes that its type declares.",
        clauses=clauses("3.7.1", "3.7.1"),
        provoke="Let something change in each class.",
        why="Clients choose streams by their classes. An entity in a stream that does not declare"
        " it is stored by nobody, or in the wrong place.",
        right="a record of LINK in a stream with LINK in record-content",
        wrong="a record of NODE in a stream of CONDITION_DETECTOR",
        sees=(RecordSeen,),
        make_judge=_Declared,
    ),
    _rule(
        "paused-silent",
        text="A PAUSED stream sends no records.",
        clauses=clauses("ST-1.1", "ST-1.1"),
        provoke="Let the provider pause a stream while its network changes.",
        why="A client takes records for a sign that the stream is ACTIVE, and silence in PAUSED"
        " for no sign at all.",
        right="nothing between PAUSED and ACTIVE",
        wrong="a record that was appended seconds after the stream was PAUSED",
        sees=(StreamsSeen, RecordSeen),
        make_judge=_Paused,
    ),
)
