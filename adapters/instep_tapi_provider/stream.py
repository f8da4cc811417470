"""One stream of a provider: the true state of its entities, and the log that states it."""

import asyncio
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from instep.errors import ConfigurationError
from instep_tapi.facts.names import LogRecordStrategy, LogRecordType, StreamState
from instep_tapi_provider.changes import GONE, differences, merge, skeleton
from instep_tapi_provider.log import TREE_SEPARATOR, Log, LogRecord, LogSettings, random_log_id
from instep_tapi_provider.records import RecordEncoder, Statement
from instep_tapi_provider.settings import StreamSettings

# Stream and stream-type uuids are the same after each start, as in a provider with a database.
_NAMESPACE = uuid.UUID("6f1f2a52-0e5c-5d0e-9a3d-7c1f9d2b8a11")


@dataclass(slots=True)
class Counters:
    """What clients did to a stream, since the provider was made."""

    connections: int = 0
    records_sent: int = 0
    starts_from_oldest: int = 0
    resumes_by_token: int = 0
    restarts_from_oldest: int = 0
    starts_from_latest: int = 0
    refused: int = 0
    dropped: int = 0
    last_start_from: str | None = None


@dataclass(slots=True, eq=False)
class Listener:
    """A connected client, as the stream monitor shows it (TR-548 3.18). `drop` cuts its
    connection.
    """

    client_id: str
    address: str
    drop: Callable[[], None]
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    last_read: LogRecord | None = None
    updated_s: float = 0.0


def _always(_kind: LogRecordType, _key: str) -> bool:
    return True


class Stream:
    """One stream: true state, log, phase and clients. No I/O; `wake` notifies the senders."""

    def __init__(
        self,
        settings: StreamSettings,
        log_settings: LogSettings,
        classes: Iterable[str],
        now: Callable[[], float],
        log_ids: Callable[[], int] = random_log_id,
    ) -> None:
        self.settings = settings
        self.classes = frozenset(classes)
        self.name(settings.stream_id)
        self.encoder = RecordEncoder(settings.style)
        self.entities: dict[str, Statement] = {}
        self.counters = Counters()
        self.listeners: dict[Listener, None] = {}
        self.turn = asyncio.Lock()
        """Held by who sends, where all clients wait for each other."""
        self.records_changes = True  # False: an internal loss goes on, changes do not reach the log
        self.now = now
        self.appends: Callable[[LogRecordType, str], bool] = _always
        """Whether a record of this type is appended at the end of an entity."""
        self._log_settings, self._log_ids = log_settings, log_ids
        self._state = StreamState.ALIGNING
        self.log = Log(log_settings, now, log_ids())

    def name(self, stream_id: str, again: str = "") -> None:
        """Give the stream this id, and uuids that go with it; others where it is named `again`."""
        self.stream_id = stream_id
        self.uuid = str(uuid.uuid5(_NAMESPACE, f"{again}stream {stream_id}"))
        self.type_uuid = str(uuid.uuid5(_NAMESPACE, f"type {stream_id}"))

    @property
    def state(self) -> StreamState:
        return self._state

    @state.setter
    def state(self, state: StreamState) -> None:
        self._state = state
        self.wake()

    def wake(self) -> None:
        """Notify the clients' senders that the log or the state has changed."""
        for listener in self.listeners:
            listener.wake.set()

    def publish(self, statement: Statement) -> None:
        """State an entity as it now is, in the stream's record strategy."""
        known = self.entities.get(statement.key)
        self.entities[statement.key] = statement
        if not self.records_changes:
            return
        if known and self.settings.record_strategy is LogRecordStrategy.CHANGE_ONLY:
            if self.settings.style.is_2_6:
                self._publish_change(known, statement)
            else:
                self._publish_changes(known, statement)
        elif self.settings.style.is_2_6:
            self._append(LogRecordType.UPDATE if known else LogRecordType.CREATE, statement)
        else:
            self._append(LogRecordType.CREATE_UPDATE, statement)

    def _publish_change(self, known: Statement, statement: Statement) -> None:
        """The log has the whole entity, and says what has changed beside it (v3.2 5.2). A CHANGE
        can state no removal, so what has one is stated whole.
        """
        record = self._append(LogRecordType.UPDATE, statement)
        old, new = msgspec.json.decode(known.body), msgspec.json.decode(statement.body)
        changed: dict[str, Any] = {}
        for path, value in differences(old, new):
            if value is GONE:
                return
            merge(changed, skeleton(new.get("uuid"), path, value))
        if changed:
            part = statement.with_body(msgspec.json.encode(changed), statement.event_s)
            change = replace(record, kind=LogRecordType.CHANGE)
            record.change = self.encoder.record(change, part)

    def _publish_changes(self, known: Statement, statement: Statement) -> None:
        statement.record = known.record
        old, new = msgspec.json.decode(known.body), msgspec.json.decode(statement.body)
        for path, value in list(differences(old, new)):
            kind = LogRecordType.TOMBSTONE if value is GONE else LogRecordType.CREATE_UPDATE
            content = {} if value is GONE else skeleton(new.get("uuid"), path, value)
            part = statement.with_body(msgspec.json.encode(content), statement.event_s)
            part.key = TREE_SEPARATOR.join((statement.key, *path))
            statement.record = self._append(kind, part, parent=statement.key)

    def end(self, key: str, *, event_s: float | None = None, delete: bool = True) -> None:
        """State that an entity has ended: DELETE and TOMBSTONE, or a TOMBSTONE alone (3.8.1.1,
        4.4).
        """
        statement = self.entities.pop(key, None)
        if statement is None or not self.records_changes:
            return
        if delete and self.appends(LogRecordType.DELETE, key):
            self._append(LogRecordType.DELETE, statement.with_body(b"", event_s))
        if self.appends(LogRecordType.TOMBSTONE, key):
            self._append(LogRecordType.TOMBSTONE, statement)

    def publish_last(self, statement: Statement) -> None:
        """State an entity a last time and end it: an alarm's CLEAR and its TOMBSTONE (4.4, 4.7). In
        2.6 the CLEAR is a DELETE (v3.2 4.4).
        """
        self.entities.pop(statement.key, None)
        if self.records_changes:
            is_2_6 = self.settings.style.is_2_6
            last = LogRecordType.DELETE if is_2_6 else LogRecordType.CREATE_UPDATE
            self._append(last, statement)
            if self.appends(LogRecordType.TOMBSTONE, statement.key):
                self._append(LogRecordType.TOMBSTONE, statement)

    def inform(self, key: str, facts: Mapping[str, str], event_s: float) -> None:
        """Append an information record, which states no entity (v3.2 3.10). In a compacted log it
        replaces the one before it under the same key, which is no entity's. Raises
        ConfigurationError for the key of an entity, and in 2.1.3, which has no such records.
        """
        if not self.settings.style.is_2_6:
            raise ConfigurationError("TAPI 2.1.3 has no information records", where=self.stream_id)
        if key in self.entities:
            raise ConfigurationError(
                f"{key!r} is the key of an entity", hint="its compaction would lose the entity"
            )
        listed = [{"value-name": name, "value": value} for name, value in facts.items()]
        body = msgspec.json.encode(listed)
        source = "MANAGEMENT_OPERATION"
        statement = Statement(key, "", body, event_s=event_s, event_source=source)
        self._append(LogRecordType.INFORMATION, statement)

    def republish_all(self) -> None:
        """State every entity whole, changed or not (WHOLE_ENTITY_PERIODIC, 3.8.2.3)."""
        for statement in list(self.entities.values()):
            self._append(LogRecordType.CREATE_UPDATE, statement)

    def _append(self, kind: LogRecordType, statement: Statement, parent: str = "") -> LogRecord:
        record = self.log.append(
            statement.key, kind, lambda record: self.encoder.record(record, statement), parent
        )
        statement.record = record
        if self.listeners:
            self.wake()
        return record

    def keys_by_last_change(self) -> list[str]:
        """Keys of what now exists, that which is longest unchanged first."""
        stated = [(s.record.ordinal, key) for key, s in self.entities.items() if s.record]
        return [key for _, key in sorted(stated)]

    def forget_log(self) -> None:
        """Lose the log and fill a new one from current state (ST-1.3, case 2): no token is known
        any more.
        """
        self.log = Log(self._log_settings, self.now, self._log_ids())
        self.records_changes = True
        self.republish_all()

    def audit(self) -> int:
        """Repair the log after an internal loss (ST-1.2 step 3). Returns how many records that
        took.
        """
        self.records_changes = True
        before = self.log.next_ordinal
        for latest in self.log.statements():
            whole, is_part, _ = latest.key.partition(TREE_SEPARATOR)
            if latest.kind in (LogRecordType.TOMBSTONE, LogRecordType.INFORMATION):
                continue
            if whole not in self.entities:
                # A part stands in the partition of its entity.
                gone = Statement(latest.key, "", b"")
                self._append(LogRecordType.TOMBSTONE, gone, parent=whole if is_part else "")
        for statement in self.entities.values():
            logged = self.log.latest(statement.key)
            if (
                logged is None
                or logged.kind.ends
                or not logged.data.endswith(b"%b}}" % statement.body)
            ):
                statement.event_s = None
                self._append(LogRecordType.CREATE_UPDATE, statement)
            else:
                # It may have been stated anew, with nothing changed, while changes were lost.
                statement.record = logged
        return self.log.next_ordinal - before
