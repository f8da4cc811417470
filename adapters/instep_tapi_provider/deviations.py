"""Ways in which a provider can break TR-548, one at a time: for whoever judges or survives it.

Each is a small change of what is declared, of what a record says, of what the log still has, or of
where a reading begins. `Faults.deviates` names the one that is on.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Final
from zlib import crc32

import msgspec

from instep_tapi.facts.names import LogRecordType
from instep_tapi_provider.log import Log, LogRecord, Start

__all__ = ["CONFORMING", "DEVIATIONS", "Deviation"]

Json = dict[str, Any]
_HOUR_S: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class Deviation:
    """One way to break the specification; what is None stays as it is specified.

    `declared` changes the content of stream-context in place. `sent` changes a log-record in place;
    it must do the same with the same record each time. `raw` changes the bytes of a record.
    `appended`: whether a record of this type is appended at the end of the entity with this key.
    `kept`: whether a log still sends a record to a reading with this start, given its age in
    seconds.
    `begins`: the ordinal at which a reading begins. `order` changes the order of what is read.
    `sends_paused`: whether a PAUSED stream goes on.
    `refuses`: the status by which a connection is refused, given its `start_from` and how many are
    open to its stream; 0: it is not. `displaces`: whether a new connection ends the others.
    `idle_s`: an idle connection ends after so long, whatever Pongs come. `waits_for_pongs`: whether
    one ends on which none come.
    `keeps_lost`: whether a client goes on that has fallen behind the log. `slow_s`: a client that
    takes nothing is dropped after so long. `queue_records`: what waits for a client that takes
    nothing; the rest is lost. `serves_together`: whether all wait for a client that takes nothing.
    """

    told: str
    declared: Callable[[Json], None] | None = None
    sent: Callable[[Json, LogRecord], None] | None = None
    raw: Callable[[bytes, LogRecord], bytes] | None = None
    appended: Callable[[LogRecordType, str], bool] | None = None
    kept: Callable[[Log, LogRecord, Start, float], bool] | None = None
    begins: Callable[[Log, int, Start], int] | None = None
    order: Callable[[Sequence[LogRecord]], list[LogRecord]] | None = None
    sends_paused: bool = False
    refuses: Callable[[str, int], int] | None = None
    displaces: bool = False
    idle_s: float = inf
    waits_for_pongs: bool = True
    keeps_lost: bool = False
    slow_s: float = inf
    queue_records: int | None = None
    serves_together: bool = False

    @property
    def feels_slow_clients(self) -> bool:
        """Whether it is about clients that take nothing: little is to wait for them elsewhere."""
        few = self.queue_records is not None or self.slow_s < inf
        return few or self.serves_together or self.keeps_lost

    def refusal(self, start_from: str | None, others: int) -> int:
        """The status by which a connection is refused; 0: it is not."""
        return 0 if self.refuses is None else self.refuses(start_from or "", others)

    def context(self, content: Json) -> Json:
        """The stream context as it is shown."""
        if self.declared is not None:
            content = copy.deepcopy(content)
            self.declared(content)
        return content

    def records(
        self, log: Log, records: Sequence[LogRecord], start: Start, now_s: float
    ) -> list[LogRecord]:
        """What is sent in place of these records."""
        found = [
            record
            for record in records
            if self.kept is None or self.kept(log, record, start, now_s - record.appended_s)
        ]
        if self.order is not None:
            found = self.order(found)
        return [self._changed(record) for record in found]

    def _changed(self, record: LogRecord) -> LogRecord:
        data = record.data
        if self.sent is not None:
            content = msgspec.json.decode(data)
            self.sent(content, record)
            data = msgspec.json.encode(content)
        if self.raw is not None:
            data = self.raw(data, record)
        return replace(record, data=data)


CONFORMING: Final = Deviation("it does as it is specified")


def _each(list_: str, change: Callable[[Json], Any], only: str = "") -> Callable[[Json], None]:
    """Change each entry of a list of the stream context, or the one with this name."""

    def declared(content: Json) -> None:
        for item in content[list_]:
            if only in {"", item.get("stream-id"), item.get("stream-type-name")}:
                change(item)

    return declared


def _details(change: Callable[[Json], Any]) -> Callable[[Json], None]:
    def change_details(item: Json) -> None:
        for name, value in item.items():
            if name.endswith("compacted-log-details"):
                change(value)

    return _each("supported-stream-type", change_details)


def _put(**members: Any) -> Callable[[Json], None]:
    stated = {name.replace("_", "-"): value for name, value in members.items()}

    def put(item: Json) -> None:
        for name, value in stated.items():
            if name in item:
                item[name] = value

    return put


def _without(*names: str) -> Callable[[Json], None]:
    def without(item: Json) -> None:
        for name in names:
            item.pop(name, None)

    return without


def _header(change: Callable[[Json], Any]) -> Callable[[Json, LogRecord], None]:
    return lambda content, _: change(content["log-record-header"])


def _body(change: Callable[[Json], Any]) -> Callable[[Json, LogRecord], None]:
    def sent(content: Json, _: LogRecord) -> None:
        if "log-record-body" in content:
            change(content["log-record-body"])

    return sent


def _entity(cls: str, change: Callable[[Json], Any]) -> Callable[[Json, LogRecord], None]:
    """Change the entity in the records of a class."""
    member = cls.lower().replace("_", "-")

    def change_body(body: Json) -> None:
        if member in body:
            change(body[member])

    return _body(change_body)


def _alarm(change: Callable[[Json], Any]) -> Callable[[Json, LogRecord], None]:
    def change_detail(detector: Json) -> None:
        if "alarm-condition-detector-detail" in detector:
            change(detector["alarm-condition-detector-detail"])

    return _entity("CONDITION_DETECTOR", change_detail)


def _shorter(item: Json, *names: str) -> None:
    for name in names:
        if name in item:
            item[name] = item[name].removeprefix("RECORD_TYPE_").rpartition("STRATEGY_")[2]


def _twice(content: Json) -> None:
    content["available-stream"].append(copy.deepcopy(content["available-stream"][0]))


def _neighbours_token(content: Json, record: LogRecord) -> None:
    if record.ordinal % 10 == 1:
        content["log-record-header"]["token"] = "shared"  # noqa: S105 - a place in a log


def _append_time(content: Json, record: LogRecord) -> None:
    if record.ordinal % 10 == 1:
        header = content["log-record-header"]
        stated = header["log-append-time-stamp"]
        header["log-append-time-stamp"] = f"{int(stated[:4]) - 1}{stated[4:]}"


def _next_year(header: Json) -> None:
    stated = header["log-append-time-stamp"]
    header["log-append-time-stamp"] = f"{int(stated[:4]) + 1}{stated[4:]}"


def _one_key(content: Json, _: LogRecord) -> None:
    if "link" in content.get("log-record-body", {}):
        content["log-record-header"]["entity-key"] = "the-key-of-links"


def _other_partition(content: Json, record: LogRecord) -> None:
    for item in content["log-record-header"]["full-log-record-offset-id"]:
        if item["value-name"] == "partition":
            item["value"] = str(record.ordinal % 2)


def _rename(body: Json) -> None:
    if "link" in body:
        body["the-entity"] = body.pop("link")


def _no_alarm(body: Json) -> None:
    body.pop("condition-detector", None)


def _between(body: Json) -> None:
    body["event-time-stamp"]["spread"] = "SPREAD_BETWEEN"


def _nested(body: Json) -> None:
    body["event-time-stamp"] = {"approx-date-and-time": body["event-time-stamp"]}


def _spread(body: Json) -> None:
    body["event-time-stamp"]["spread"] = "at"


def _parents(change: Callable[[list[str]], list[str]]) -> Callable[[Json, LogRecord], None]:
    def change_body(body: Json) -> None:
        if "parent-address" in body:
            body["parent-address"] = change(body["parent-address"])

    return _body(change_body)


def _cleared(detail: Json) -> None:
    if detail["alarm-detector-state"].endswith("ACTIVE"):
        detail["legacy-properties"]["perceived-severity"] = "CLEARED"


def _clear_by_update(content: Json, record: LogRecord) -> None:
    """The DELETE of an alarm as an UPDATE with its state, as 2.1.3 had it."""
    key = content["log-record-header"]["entity-key"]
    if record.kind is not LogRecordType.DELETE or not _is_alarm(key):
        return
    header, body = content["log-record-header"], content["log-record-body"]
    header["record-type"] = header["record-type"].replace("DELETE", "UPDATE")
    body["record-content"] = "tapi-streaming:STREAMING_OBJECT_TYPE_CONDITION_DETECTOR"
    state = {"simple-detector-state": "tapi-fm:SIMPLE_DETECTOR_STATE_CLEAR"}
    body["condition-detector"] = {
        "measured-entity-native-id": "m",
        "detector-native-id": key,
        "condition-detector-type": "CONDITION_DETECTOR_TYPE_ALARM_DETECTOR",
        "tapi-fm:detected-condition": {
            "detected-condition-name": "tapi-common:DC_NATIVE",
            "detected-condition-native-name": "n",
            "simple-detector": state,
        },
    }


def _is_alarm(key: str) -> bool:
    return key.lstrip("-").isdecimal()


def _some(key: str) -> bool:
    return crc32(key.encode()) % 3 == 0


def _resumed(start: Start) -> bool:
    return start is Start.RESUMED


def _swapped(records: Sequence[LogRecord]) -> list[LogRecord]:
    found = list(records)
    for index in range(1, len(found), 7):
        found[index - 1], found[index] = found[index], found[index - 1]
    return found


def _at_latest(log: Log, position: int, start: Start) -> int:
    return log.next_ordinal if start is Start.OLDEST else position


def _five_later(_: Log, position: int, start: Start) -> int:
    return position + 5 if start is Start.RESUMED else position


def _always_oldest(log: Log, position: int, _: Start) -> int:
    return log.oldest.ordinal if log.oldest else position


def _never_back(log: Log, position: int, start: Start) -> int:
    return log.next_ordinal - 1 if start is Start.RESTARTED else position


def _every(ordinals: int) -> Callable[[bytes, LogRecord], bytes]:
    return lambda data, record: data[: len(data) // 2] if record.ordinal % ordinals == 1 else data


_TYPES: Final = "supported-stream-type"
_STREAMS: Final = "available-stream"
DEVIATIONS: Final[dict[str, Deviation]] = {
    "no-type-name": Deviation(
        "a stream type has no name", declared=_each(_TYPES, _without("stream-type-name"))
    ),
    "no-retention": Deviation(
        "a stream type has no retention", declared=_each(_TYPES, _without("record-retention"))
    ),
    "no-classes": Deviation(
        "a stream type has no classes", declared=_each(_TYPES, _without("record-content"))
    ),
    "short-strategies": Deviation(
        "strategies are short names",
        declared=_each(
            _TYPES, lambda one: _shorter(one, "log-storage-strategy", "log-record-strategy")
        ),
    ),
    "no-delay": Deviation("no compaction delay", declared=_details(_without("compaction-delay"))),
    "no-details": Deviation(
        "no details of the compacted log",
        declared=_each(_TYPES, _without("tapi-streaming:compacted-log-details")),
    ),
    "periods-with-unit": Deviation(
        "periods name their unit",
        declared=_details(lambda one: one.update({"compaction-delay": "10 minutes"})),
    ),
    "short-retention": Deviation(
        "tombstones go before the delay ends",
        declared=_details(lambda one: one.update({"tombstone-retention": "5"})),
    ),
    "finite-network": Deviation(
        "a compacted log of the network is kept for a day",
        declared=_each(_TYPES, _put(record_retention="1440"), "network"),
    ),
    "finite-alarms": Deviation(
        "a compacted log of alarms is kept for a day",
        declared=_each(_TYPES, _put(record_retention="1440"), "alarms"),
    ),
    "all-truncated": Deviation(
        "all logs are truncated",
        declared=_each(_TYPES, _put(log_storage_strategy="LOG_STORAGE_STRATEGY_TRUNCATED")),
    ),
    "alarms-truncated": Deviation(
        "the log of alarms is truncated",
        declared=_each(
            _TYPES, _put(log_storage_strategy="LOG_STORAGE_STRATEGY_TRUNCATED"), "alarms"
        ),
    ),
    "no-state": Deviation(
        "streams have no state", declared=_each(_STREAMS, _without("stream-state"))
    ),
    "no-protocol": Deviation(
        "streams have no protocol", declared=_each(_STREAMS, _without("connection-protocol"))
    ),
    "unknown-type": Deviation(
        "a stream has a type that is not there",
        declared=_each(
            _STREAMS,
            lambda one: one["supported-stream-type"].update({"supported-stream-type-uuid": "?"}),
            "network",
        ),
    ),
    "unknown-state": Deviation(
        "a stream has an unknown state",
        declared=_each(_STREAMS, _put(stream_state="RUNNING"), "network"),
    ),
    "other-protocol": Deviation(
        "a stream has a protocol that its type does not allow",
        declared=_each(_STREAMS, _put(connection_protocol="carrier-pigeon"), "network"),
    ),
    "twice": Deviation("a stream is listed twice", declared=_twice),
    "undeclared-class": Deviation(
        "a stream carries a class that it does not declare",
        declared=_each(
            _TYPES,
            lambda one: one.update(
                {"record-content": [cls for cls in one["record-content"] if cls != "LINK"]}
            ),
        ),
    ),
    "paused-goes-on": Deviation("a PAUSED stream goes on", sends_paused=True),
    "refuses-all": Deviation("streams cannot be connected to", refuses=lambda _, __: 404),
    "refuses-tokens": Deviation(
        "tokens are refused", refuses=lambda start, _: 400 if start and start != "latest" else 0
    ),
    "one-client": Deviation(
        "a second client is refused", refuses=lambda _, others: 403 if others else 0
    ),
    "last-client": Deviation("a second client ends the first", displaces=True),
    "ends-idle": Deviation("idle connections end after ten seconds", idle_s=10.0),
    "needs-no-pong": Deviation("silent clients keep their place", waits_for_pongs=False),
    "drops-slow": Deviation("slow clients are dropped at once", slow_s=1.0),
    "overflows": Deviation("slow clients lose records", queue_records=3),
    "keeps-lost": Deviation("clients go on that have lost tombstones", keeps_lost=True),
    "together": Deviation("all clients wait for the slowest", serves_together=True),
    "no-token": Deviation("records have no token", sent=_header(_without("token"))),
    "shared-token": Deviation("records share a token", sent=_neighbours_token),
    "no-append-time": Deviation(
        "records have no append time", sent=_header(_without("log-append-time-stamp"))
    ),
    "odd-append-time": Deviation(
        "the append time is no time", sent=_header(_put(log_append_time_stamp="yesterday"))
    ),
    "append-time-ahead": Deviation("append times are in the future", sent=_header(_next_year)),
    "append-time-back": Deviation("append times go back", sent=_append_time),
    "no-key": Deviation("records have no entity-key", sent=_header(_without("entity-key"))),
    "one-key": Deviation("all links have one entity-key", sent=_one_key),
    "short-types": Deviation(
        "record types are short names", sent=_header(lambda one: _shorter(one, "record-type"))
    ),
    "no-offset": Deviation(
        "records have no offset", sent=_header(_put(full_log_record_offset_id=[]))
    ),
    "no-content-name": Deviation("no record-content", sent=_body(_without("record-content"))),
    "unknown-class": Deviation(
        "a class has a name of its own",
        sent=_body(
            lambda one: one.update(
                {"record-content": one["record-content"].replace("CONNECTION_END_POINT", "CEP")}
            )
        ),
    ),
    "empty-alarm": Deviation("records of alarms state no alarm", sent=_body(_no_alarm)),
    "other-member": Deviation("an entity is under another member", sent=_body(_rename)),
    "no-uuid": Deviation("links have no uuid", sent=_entity("LINK", _without("uuid"))),
    "no-event-time": Deviation("no event time", sent=_body(_without("event-time-stamp"))),
    "nested-event-time": Deviation(
        "the event time is nested",
        sent=_body(_nested),
    ),
    "odd-spread": Deviation("a spread that nobody names", sent=_body(_spread)),
    "half-interval": Deviation("an interval without beginning", sent=_body(_between)),
    "no-parent": Deviation("no parent-address", sent=_body(_without("parent-address"))),
    "paths-as-parents": Deviation(
        "parents are paths",
        sent=_parents(lambda one: [f"/{element.replace(':', '=')}" for element in one]),
    ),
    "parents-upwards": Deviation(
        "parents stand lowest first", sent=_parents(lambda one: one[::-1])
    ),
    "half-json": Deviation("records are cut short", raw=_every(10)),
    "empty-json": Deviation(
        "records are empty objects",
        raw=lambda data, record: b"{}" if record.ordinal % 10 == 1 else data,
    ),
    "no-tombstone": Deviation(
        "no TOMBSTONE follows a DELETE",
        appended=lambda kind, key: kind is not LogRecordType.TOMBSTONE or _is_alarm(key),
    ),
    "no-alarm-tombstone": Deviation(
        "no TOMBSTONE follows a CLEAR",
        appended=lambda kind, key: kind is not LogRecordType.TOMBSTONE or not _is_alarm(key),
    ),
    "clear-by-update": Deviation("a CLEAR is an UPDATE (2.6)", sent=_clear_by_update),
    "nameless-detector": Deviation(
        "detectors have no native id",
        sent=_entity("CONDITION_DETECTOR", _without("detector-native-id")),
    ),
    "short-detector-type": Deviation(
        "detector types are short names",
        sent=_entity("CONDITION_DETECTOR", _put(condition_detector_type="ALARM_DETECTOR")),
    ),
    "odd-alarm-state": Deviation(
        "an alarm state that nobody names", sent=_alarm(_put(alarm_detector_state="RAISED"))
    ),
    "no-alarm-state": Deviation(
        "an alarm without state", sent=_alarm(_without("alarm-detector-state"))
    ),
    "severity-cleared": Deviation("a standing alarm has severity CLEARED", sent=_alarm(_cleared)),
    "swapped": Deviation("neighbours come in the wrong order", order=_swapped),
    "two-partitions": Deviation("an entity is in two partitions", sent=_other_partition),
    "leaves-out": Deviation(
        "each tenth record is left out behind a token",
        kept=lambda _, record, start, __: not (_resumed(start) and record.ordinal % 10 == 5),
    ),
    "begins-at-latest": Deviation("no token leads to the next record", begins=_at_latest),
    "skips-after-token": Deviation("five records behind a token are skipped", begins=_five_later),
    "ignores-tokens": Deviation("each token leads to the oldest record", begins=_always_oldest),
    "takes-old-tokens": Deviation("an old token leads to the newest record", begins=_never_back),
    "forgets-young": Deviation(
        "what is superseded is gone after a minute",
        kept=lambda log, record, start, age_s: (
            _resumed(start) or age_s < 60 or log.latest(record.key) is record
        ),
    ),
    "forgets-entities": Deviation(
        "a third of the entities is gone after an hour",
        kept=lambda log, record, start, age_s: (
            _resumed(start)
            or record.kind.ends
            or age_s < _HOUR_S
            or log.latest(record.key) is not record
            or not _some(record.key)
        ),
    ),
    "forgets-tombstones": Deviation(
        "tombstones are gone after half an hour",
        kept=lambda _, record, start, age_s: (
            _resumed(start) or record.kind is not LogRecordType.TOMBSTONE or age_s < _HOUR_S / 2
        ),
    ),
    "lacks-entities": Deviation(
        "some nodes and links are never streamed",
        kept=lambda _, record, *__: _is_alarm(record.key) or not _some(record.key),
    ),
    "half-entities": Deviation(
        "nodes are stated without their states",
        sent=_entity("NODE", _without("operational-state", "lifecycle-state")),
    ),
    "states-untold": Deviation(
        "ports are stated as they were at first",
        sent=_entity("NODE_EDGE_POINT", _put(operational_state="DISABLED")),
    ),
    "ends-untold": Deviation(
        "the end of a link is not told",
        appended=lambda _, key: _is_alarm(key),
    ),
}
"""Name → what the provider does."""
