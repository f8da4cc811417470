"""A small model of a provider's log and of a store: what the alignment is tried against.

`ModelLog` is a compacted log with partitions and a virtual clock; `ModelFeed` one connection to it;
`ModelStore` what a sink promises (A1, A3, A4, A5 and A7), without a database.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from instep import Position, Record, RecordType, StreamInfo
from instep.model import Batch, CommitResult, Start
from instep.model.batches import SweepStep
from instep.model.records import RecordHeader
from instep.model.streams import StreamState, SweepEstimate

T0_US: Final = 1_700_000_000_000_000
US: Final = 1_000_000
COMPACTION_DELAY_S: Final = 600.0
TOMBSTONE_RETENTION_S: Final = 4 * 3600.0
STREAM: Final = "model"


class TokenUnknown(Exception):
    """The provider refuses to resume from a token."""


@dataclass(frozen=True)
class Entry:
    """One record of the log; `seq` is its place in the whole of it."""

    seq: int
    partition: int
    offset: int
    key: str
    kind: RecordType
    at_us: int
    body: bytes = b""

    @property
    def ends(self) -> bool:
        return self.kind is not RecordType.CREATE_UPDATE


@dataclass
class ModelLog:
    """A provider with one stream.

    With `anchored`, each partition begins with an entity that never changes: a log that is rebuilt
    under the same origin can then be detected by its first record.
    """

    partitions: int = 1
    offsets: bool = True
    anchored: bool = True
    now_us: int = T0_US
    entries: list[Entry] = field(default_factory=list)
    alive: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    """What exists: since when, and its body."""
    generation: int = 0
    """Counts the logs; tokens of another one mean nothing."""
    origin: int = 0
    state: StreamState = StreamState.ACTIVE
    _seq: int = 0
    _next: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._begin()

    def _begin(self, begins_at: Sequence[int] = ()) -> None:
        self.entries = []
        self._next = list(begins_at) or [0] * self.partitions
        if self.anchored:
            for partition in range(self.partitions):
                self.put(f"anchor-{partition}")

    @property
    def info(self) -> StreamInfo:
        return StreamInfo(
            id=STREAM,
            origin=f"model/{self.origin}",
            kind="model",
            classes=("NODE",),
            may_start_with_snapshot=False,
            compaction_delay_s=COMPACTION_DELAY_S,
            tombstone_retention_s=TOMBSTONE_RETENTION_S,
        )

    @property
    def bodies(self) -> dict[str, bytes]:
        return {key: body for key, (_, body) in self.alive.items()}

    def partition_of(self, key: str) -> int:
        return int(key.rpartition("-")[2]) % self.partitions

    def _append(self, key: str, kind: RecordType, body: bytes, *, shares: bool = False) -> None:
        partition = self.partition_of(key)
        if not shares:
            self._next[partition] += 1
        self._seq += 1
        offset = self._next[partition] - 1
        self.entries.append(Entry(self._seq, partition, offset, key, kind, self.now_us, body))

    def put(self, key: str) -> None:
        body = b"%d.%d" % (self.generation, self._seq + 1)
        self.alive[key] = (self.alive.get(key, (self.now_us, b""))[0], body)
        self._append(key, RecordType.CREATE_UPDATE, body)

    def end(self, key: str, *kinds: RecordType, shares: bool = False) -> None:
        """End an entity by DELETE, TOMBSTONE or both, which may share token and offset."""
        del self.alive[key]
        for index, kind in enumerate(kinds):
            self._append(key, kind, b"", shares=shares and index > 0)

    def compact(self) -> None:
        """Remove what TR-548 3.8.1.1 allows: superseded records past the delay, tombstones past
        theirs.
        """
        cleaner_us = self.now_us - int(COMPACTION_DELAY_S * US)
        gone_us = self.now_us - int(TOMBSTONE_RETENTION_S * US)
        latest = {entry.key: entry.seq for entry in self.entries if entry.at_us <= cleaner_us}
        self.entries = [
            entry
            for entry in self.entries
            if entry.at_us > cleaner_us
            or (latest[entry.key] == entry.seq and not (entry.ends and entry.at_us <= gone_us))
        ]

    def lose(self, *, elsewhere: bool, begins_at: Sequence[int] | None = None) -> None:
        """The log is lost and rebuilt from what exists, under the same origin or another. With
        `begins_at`, its offsets begin there, and the origin stays.
        """
        self.now_us += US  # A log is not rebuilt in the instant in which it is lost.
        self.generation += 1
        self.origin += elsewhere or not (begins_at or (self.anchored and self.offsets))
        existing = [key for key in self.alive if not key.startswith("anchor-")]
        self._begin(begins_at or ())
        for key in existing:
            self.put(key)

    def read(self, token: str) -> list[int]:
        """The offsets that a token stands for, by partition. Raises `TokenUnknown`."""
        generation, _, places = token.partition(":")
        if generation != str(self.generation):
            raise TokenUnknown
        return [int(place) for place in places.split(".")]

    def connect(self, start: str | Start, *, rewind: int = 0, restart: bool = False) -> ModelFeed:
        """Open the stream: after a token, some records before it, or (whatever was asked) from
        the oldest. Raises `TokenUnknown`.
        """
        cursor = [-1] * self.partitions
        if start is Start.LATEST:
            cursor = [offset - 1 for offset in self._next]
        elif not isinstance(start, Start) and not restart:
            cursor = [max(-1, offset - rewind) for offset in self.read(start)]
        return ModelFeed(self, cursor, self._seq)


@dataclass
class ModelFeed:
    """One connection: where it reads, partition by partition."""

    log: ModelLog
    cursor: list[int]
    opened_seq: int
    _seqs: dict[int, int] = field(default_factory=dict)

    def pending(self) -> list[Entry]:
        return [
            entry
            for entry in self.log.entries
            if entry.offset > self.cursor[entry.partition]
            or entry.seq > self._seqs.get(entry.partition, entry.seq)
        ]

    def pull(self, most: int, prefer: int = 0) -> list[Record]:
        """The next records: the backlog first, of the preferred partition first (TR-548 6.1.4)."""
        pending = self.pending()
        backlog = [entry for entry in pending if entry.seq <= self.opened_seq]
        mine = [entry for entry in backlog if entry.partition == prefer % self.log.partitions]
        return [self._deliver(entry) for entry in (mine or backlog or pending)[:most]]

    def _deliver(self, entry: Entry) -> Record:
        log = self.log
        self.cursor[entry.partition] = entry.offset
        self._seqs[entry.partition] = entry.seq
        return Record(
            stream=STREAM,
            key=entry.key,
            kind=entry.kind,
            token=f"{log.generation}:{'.'.join(map(str, self.cursor))}",
            appended_at_us=entry.at_us,
            partition=str(entry.partition) if log.offsets else "",
            offset=entry.offset if log.offsets else -1,
            entity_class="NODE",
            body=entry.body,
            ends=entry.ends,
        )


@dataclass(frozen=True)
class Stored:
    """An entity, the lineage its record is of, and the attempt that marked it."""

    record: Record
    lineage: int
    attempt: int


@dataclass
class ModelStore:
    """A sink in a dict, with all guarantees of the port."""

    entities: dict[str, Stored] = field(default_factory=dict)
    position: Position = field(default_factory=Position)
    on_sweep: Callable[[str, Stored], None] = lambda _key, _stored: None
    _order: dict[str, int] = field(default_factory=dict)

    @property
    def bodies(self) -> dict[str, bytes]:
        return {key: stored.record.body for key, stored in self.entities.items()}

    def commit(self, batch: Batch) -> CommitResult:
        assert batch.expects_ordinal == self.position.ordinal, "fenced"
        for record in batch.records:
            self._apply(record, batch.position, batch.lineage)
        self.position = batch.position
        return CommitResult() if batch.sweep is None else self._sweep(batch.sweep)

    def _apply(self, record: Record, position: Position, lineage: int) -> None:
        stored = self.entities.get(record.key)
        if stored and stored.lineage == lineage and newer(stored.record, record):
            return
        if record.ends:
            self.entities.pop(record.key, None)
        else:
            if stored is None:
                self._order[record.key] = max(self._order.values(), default=0) + 1
            self.entities[record.key] = Stored(record, lineage, position.attempt)

    def _sweep(self, step: SweepStep) -> CommitResult:
        window = sorted(
            (at, key)
            for key, at in self._order.items()
            if key in self.entities and at > step.cursor
        )[: step.limit_records]
        doomed = [key for _, key in window if self.entities[key].attempt < step.attempt]
        for key in doomed:
            self.on_sweep(key, self.entities.pop(key))
        return CommitResult(
            swept=len(doomed),
            sweep_cursor=window[-1][0] if window else step.cursor,
            sweep_done=len(window) < step.limit_records,
        )

    def estimate_sweep(self, attempt: int) -> SweepEstimate:
        unmarked = sum(stored.attempt < attempt for stored in self.entities.values())
        return SweepEstimate(len(self.entities), unmarked)


def newer(one: RecordHeader, other: RecordHeader) -> bool:
    """Whether `one` lies after `other` in their log."""
    if one.offset >= 0 and other.offset >= 0 and one.partition == other.partition:
        return one.offset > other.offset
    return one.appended_at_us > other.appended_at_us
