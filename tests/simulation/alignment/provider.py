"""The provider: what is true of its network, and the instances that state it in logs of their own.

Streams, logs, records and tokens are those of `instep_tapi_provider`; time is the simulation's.
"""

from __future__ import annotations

import json
import random
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from instep import Mode, StreamInfo
from instep.model.streams import StreamState
from instep_tapi.facts.containment import contained_members
from instep_tapi.facts.names import LogRecordType, LogStorageStrategy
from instep_tapi.facts.names import StreamState as ProviderState
from instep_tapi_provider.faults import Faults
from instep_tapi_provider.log import Log, LogRecord, LogSettings
from instep_tapi_provider.records import RecordStyle, Statement
from instep_tapi_provider.settings import StreamSettings
from instep_tapi_provider.stream import Stream
from tests.simulation.alignment.options import LogOptions

__all__ = ["STREAM", "Instance", "Provider", "SimLog"]

STREAM: Final = "all"
_ALARM: Final = "CONDITION_DETECTOR"
_STORAGE: Final = {
    "compacted": LogStorageStrategy.COMPACTED,
    "forgetful": LogStorageStrategy.COMPACTED,
    "emulated": LogStorageStrategy.TRUNCATED,
    "truncated": LogStorageStrategy.TRUNCATED,
    "full-history": LogStorageStrategy.FULL_HISTORY,
}


class SimLog(Log):
    """A log that also remembers all it ever stated, for the checks.

    Compaction lets an old record go only when the one that supersedes it is itself past the
    compaction delay: what ST-2.2 step 7 rests on ("compaction will not remove old records due to
    records that are newer than the compaction delay").
    """

    def __init__(
        self,
        settings: LogSettings,
        now: Callable[[], float],
        log_id: int,
        *,
        begins_at: Sequence[int] = (),
        sparse: random.Random | None = None,
    ) -> None:
        """`begins_at`: the first offset of each partition. `sparse`: leaves offsets out."""
        super().__init__(settings, now, log_id)
        self._sparse = sparse
        self._offsets = list(begins_at) or self._offsets
        self.history: list[list[LogRecord | None]] = [[None] * at for at in self._offsets]
        """By partition and offset; None where no record has the offset."""
        self.by_key: dict[str, list[LogRecord]] = {}
        self.stated_since: dict[str, float] = {}
        """Since when each entity is stated without interruption."""
        self._settled: dict[str, LogRecord] = {}
        self._offsets_by_ordinal: list[int] = []

    def append(
        self, key: str, kind: LogRecordType, encode: Callable[[LogRecord], bytes], parent: str = ""
    ) -> LogRecord:
        if self._sparse is not None:
            self._offsets = [at + self._sparse.choice((0, 0, 0, 1, 2)) for at in self._offsets]
        record = super().append(key, kind, encode, parent)
        history = self.history[record.partition]
        history += [None] * (record.offset - len(history))
        history.append(record)
        self._offsets_by_ordinal.append(record.offset)
        self.by_key.setdefault(key, []).append(record)
        if kind is LogRecordType.CREATE_UPDATE:
            self.stated_since.setdefault(key, record.appended_s)
        else:
            self.stated_since.pop(key, None)
        return record

    @property
    def forgets_ends(self) -> bool:
        """Whether ends leave the log between its ends: who is overtaken must be dropped."""
        return self.settings.strategy is LogStorageStrategy.COMPACTED

    def holds(self, record: LogRecord) -> bool:
        return record.ordinal in self._records

    def offset_of(self, ordinal: int) -> int:
        return self._offsets_by_ordinal[ordinal]

    def last_before(self, key: str, offset: int) -> LogRecord | None:
        """The last statement about a key up to an offset of its partition."""
        stated = self.by_key[key]
        at = bisect_right(stated, offset, key=lambda record: record.offset)
        return stated[at - 1] if at else None

    def _supersede(self, record: LogRecord, parent: str) -> None:
        assert not parent
        if record.kind is LogRecordType.TOMBSTONE:
            self._tombstones.append(record)
        self._latest[record.key] = record

    def _compact(self, now: float) -> None:
        cleaner_point = now - self.settings.compaction_delay_s
        while self._young and self._young[0].appended_s <= cleaner_point:
            record = self._young.popleft()
            older = self._settled.get(record.key)
            if older is not None:
                self._remove(older)
            self._settled[record.key] = record
        super()._compact(now)


class Instance:
    """One instance of the provider: its stream, its log, and whether it is up."""

    def __init__(
        self, name: str, options: LogOptions, now: Callable[[], float], rng: random.Random
    ) -> None:
        self.name = name
        self.up = True
        self.empty = False
        """Whether its log is not filled yet: changes do not reach it."""
        self._known: list[str] = []
        self._described: tuple[str, LogSettings] | None = None
        self._info: StreamInfo
        self._rng = rng
        self._now = now
        self._options = options
        settings = StreamSettings(
            STREAM,
            storage=_STORAGE[options.storage],
            emulated=options.storage == "emulated",
            partitions=options.partitions,
            style=RecordStyle(),
        )
        self._log_settings = LogSettings(
            strategy=_STORAGE[options.storage],
            partitions=options.partitions,
            compaction_delay_s=options.compaction_delay_s,
            tombstone_retention_s=options.tombstone_retention_s,
            retention_s=options.retention_s,
            retention_records=options.retention_records,
            forgets=options.storage == "forgetful",
        )
        self.stream = Stream(settings, self._log_settings, set(options.classes), now)
        self.stream.state = ProviderState.ACTIVE
        self.logs: list[SimLog] = []
        self.new_log()

    @property
    def log(self) -> SimLog:
        return self.logs[-1]

    @property
    def compaction_delay_s(self) -> float | None:
        """How long nothing leaves the log between its ends; None: at no time does it."""
        compacts = self._options.storage in {"compacted", "forgetful"}
        return self._log_settings.compaction_delay_s if compacts else None

    def new_log(self, *, ahead: bool = False, empty: bool = False) -> None:
        """Lose the log; the new one is filled from what is (ST-1.3, case 2). `ahead`: it counts on
        beyond the one that is lost; `empty`: it is filled later.
        """
        begins_at = [at + self._rng.randint(0, 9) for at in self.log._offsets] if ahead else ()
        sparse = random.Random(self._rng.getrandbits(32)) if self._options.sparse else None
        id_ = self._rng.getrandbits(62)
        log = SimLog(self._log_settings, self._now, id_, begins_at=begins_at, sparse=sparse)
        self.logs.append(log)
        self.stream.log = log
        self.stream.records_changes = self.up and not empty
        self.empty = empty
        # A log that was lost has no tombstones of what has ended meanwhile.
        self._known.clear()
        for statement in self.stream.entities.values():
            # A snapshot of emulated compaction shows what the log states, and it is empty now.
            statement.record = None
        if self.up and not empty:
            self.stream.republish_all()

    def fill(self) -> None:
        """Fill a log that was begun empty."""
        self.empty = False
        if self.up:
            self.stream.records_changes = True
            self.stream.republish_all()

    def upgrade(self, *, uuid: bool, log: bool) -> None:
        """Become another stream, have another log with other times, or both (TR-548 ST-1.3)."""
        if uuid:
            self.stream.uuid = f"{self.stream.uuid[:36]} {len(self.logs)}.{self._rng.random()}"
        if log:
            longer = self._rng.uniform(0.5, 2.0)
            self._log_settings = replace(
                self._log_settings,
                compaction_delay_s=self._log_settings.compaction_delay_s * longer,
                tombstone_retention_s=self._log_settings.tombstone_retention_s * longer,
                retention_s=self._log_settings.retention_s * longer,
            )
            self.new_log()

    def oldest_offsets(self) -> dict[int, int]:
        """Where a reader that is started from the oldest record begins, by partition."""
        stated: Iterable[LogRecord] = self.log
        if self._options.storage == "emulated":
            stated = [s.record for s in self.stream.entities.values() if s.record is not None]
        oldest: dict[int, int] = {}
        for record in stated:
            oldest[record.partition] = min(record.offset, oldest.get(record.partition, 1 << 62))
        return oldest

    def cut(self) -> None:
        """Cut every connection."""
        for listener in list(self.stream.listeners):
            listener.drop()

    def go_down(self) -> None:
        """Stop receiving changes of the network and refuse connections."""
        self.up = self.stream.records_changes = False
        self._known = list(self.stream.entities)
        self.cut()

    def come_up(self) -> None:
        """With its log, which it brings up to date (ST-1.2)."""
        self.up = True
        if self.empty:
            self.stream.records_changes = False
            return
        self.stream.audit()
        for key in self._known:
            # The log itself cannot show what ended meanwhile when it holds no record of it.
            if key not in self.stream.entities and self.log.latest(key) is None:
                self.stream._append(LogRecordType.TOMBSTONE, Statement(key, "", b""))

    def info(self) -> StreamInfo:
        """As `TapiSource.discover` would describe it."""
        described = (self.stream.uuid, self._log_settings)
        if self._described != described:
            self._described, self._info = described, self._describe()
        return self._info

    def _describe(self) -> StreamInfo:
        options = self._options
        baseline, forgetful = options.baseline, options.storage == "forgetful"
        emulated = options.storage == "emulated"
        log = self._log_settings
        delay_s = log.retention_s if emulated else log.compaction_delay_s
        keeps_s = log.retention_s if emulated else log.tombstone_retention_s
        compacted = options.storage in {"compacted", "emulated"} or forgetful
        by_change = options.records == "change-only"
        return StreamInfo(
            id=STREAM,
            origin=f"{self.name} {self.stream.uuid}",
            kind="simulated",
            mode=Mode.BASELINE if baseline else Mode.LOG,
            classes=options.classes,
            may_start_with_snapshot=emulated,
            variant=options.storage,
            partial_updates=by_change,
            compaction_delay_s=delay_s if compacted else None,
            tombstone_retention_s=keeps_s if compacted else None,
            record_retention_s=log.retention_s if baseline else None,
            compacts=forgetful,
            readable=frozenset(options.classes) if baseline else frozenset(),
            contained=contained_members(frozenset(options.classes)) if baseline else frozenset(),
        )


class Provider:
    """One instance or a `pair` over one network. Each instance receives the changes while it is
    up.
    """

    def __init__(
        self, options: LogOptions, now: Callable[[], float], rng: random.Random, *, pair: bool
    ) -> None:
        self.options = options
        self._rng = rng
        self._changes = 0
        self._keys = 0
        self.state = StreamState.ACTIVE
        self.faults = Faults()
        self.bodies: dict[str, bytes] = {}
        """What is true: entity-key to body, without the entities below it."""
        names = ("east", "west") if pair else ("east",)
        self.instances = [Instance(name, options, now, rng) for name in names]
        self.current = self.instances[0]
        for _ in range(options.entities):
            self.create()

    def create(self) -> None:
        self._keys += 1
        self._state(f"k{self._keys}")

    def update(self) -> None:
        if self.bodies:
            self._state(self._rng.choice(list(self.bodies)))

    def end(self) -> None:
        if len(self.bodies) < 2:
            return
        key = self._rng.choice(list(self.bodies))
        del self.bodies[key]
        way = self._rng.randrange(3)
        for instance in self.instances:
            if way or self._class_of(key) != _ALARM:
                instance.stream.end(key, delete=way == 1)
            else:
                instance.stream.publish_last(
                    self._statement(key, b',"alarm-detector-state":"CLEAR"')
                )

    def change(self) -> None:
        """Anything: also an entity that ends and is stated again under its old key."""
        fate = self._rng.random()
        wanted = self.options.entities
        if fate < 0.7:
            self.update()
        elif fate < 0.8:
            gone = self._gone()
            self._state(self._rng.choice(gone)) if gone else self.create()
        elif fate < 0.9 and len(self.bodies) < 2 * wanted:
            self.create()
        else:
            self.end()

    def key_of(self, key: str, envelope: bytes) -> str:  # noqa: ARG002
        """The entity-key of a row: a baseline may have given it another one."""
        return key

    def own(self, body: bytes) -> Any:
        """What a body states of the entity itself."""
        return body

    def states(self, data: bytes, body: bytes) -> bool:
        """Whether a log record states what a row holds."""
        return body in data

    def _gone(self) -> list[str]:
        """Keys that may be stated again."""
        return [f"k{n}" for n in range(1, self._keys + 1) if f"k{n}" not in self.bodies]

    def _state(self, key: str) -> None:
        statement = self._statement(key, self._members_of(key))
        self.bodies[key] = statement.body
        for instance in self.instances:
            instance.stream.publish(self._copy(statement))

    def _statement(self, key: str, more: bytes) -> Statement:
        self._changes += 1
        body = b'{"uuid":"%s","change":%d%s}' % (key.encode(), self._changes, more)
        return Statement(key, self._class_of(key), body)

    def _members_of(self, key: str) -> bytes:
        """Of a provider of 2.6: members of which one changes at a time."""
        if not self.options.records:
            return b""
        before = self.bodies.get(key)
        members: dict[str, Any] = {"a": 0, "of": {"b": 0, "c": 0}, "list": []}
        if before is not None:
            stated = json.loads(before)
            members = {name: stated[name] for name in members}
        change = self._changes + 1
        match change % 4:
            case 0:
                members["a"] = change
            case 1:
                members["of"] = {"b": change, "c": members["of"]["c"]}
            case 2:
                members["of"] = {"b": members["of"]["b"], "c": change}
            case _:
                values = range(change % 3)
                members["list"] = [{"value-name": str(n), "value": str(change)} for n in values]
        return b"," + json.dumps(members, separators=(",", ":")).encode()[1:-1]

    def _class_of(self, key: str) -> str:
        """One class for each key (TR-548 3.10). Alarms have no resource: no baseline shows them."""
        return _ALARM if int(key[1:]) % 3 == 0 and _ALARM in self.options.classes else "NODE"

    @staticmethod
    def _copy(statement: Statement) -> Statement:
        return statement.with_body(statement.body, None)
