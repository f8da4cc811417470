"""A stream's log, without I/O: append, partitions, compaction, truncation, and reading from a
token.

The rules are those of TR-548 3.8.1 (storage strategies), 5.2.7 to 5.2.9 and 5.8 (where a stream
starts) and 6.1 (compaction). The clock is injected; nothing here waits.

How it is kept: records get an ordinal in the order of appending. A dict from ordinal to record and
a list of the ordinals hold them; a removed record leaves an empty place in the list, which is
rebuilt when more than half of its places are empty. So append, removal and seeking stay cheap with
a million records.
"""

import math
import secrets
import zlib
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from instep.errors import ConfigurationError
from instep_tapi.facts.names import LogRecordType, LogStorageStrategy
from instep_tapi_provider.tokens import Tokens

TREE_SEPARATOR = "/"
LATEST = "latest"


@dataclass(slots=True)
class LogRecord:
    """One record in a log. `data` is the whole log-record, encoded; `offset` counts within
    `partition`. `change`: the same as a CHANGE, for those who know the entity (v3.2 5.2).
    """

    ordinal: int
    key: str
    kind: LogRecordType
    partition: int
    offset: int
    appended_s: float
    token: str
    data: bytes = b""
    change: bytes = b""


class Start(Enum):
    """How a stream was started for a client (TR-548 5.8)."""

    OLDEST = "from the oldest record, as asked"
    RESUMED = "from the record after the token"
    RESTARTED = "from the oldest record, the token being too old or unknown"
    LATEST = "from the next record to be appended"


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How long a log keeps what. Periods are real seconds, already scaled.

    `compaction_delay_s`: a COMPACTED log keeps every record at least this long (3.7.1).
    `tombstone_retention_s`: a COMPACTED log keeps tombstones this long; at least the compaction
    delay.
    `retention_s`, `retention_records`: the age and the number of records a TRUNCATED log keeps.
    `forgets`: a COMPACTED log keeps no record longer than `retention_s` either.
    """

    strategy: LogStorageStrategy = LogStorageStrategy.COMPACTED
    partitions: int = 1
    compaction_delay_s: float = 600.0
    tombstone_retention_s: float = 4 * 3600.0
    retention_s: float = 24 * 3600.0
    retention_records: int | None = None
    forgets: bool = False

    def __post_init__(self) -> None:
        if self.partitions < 1:
            raise ConfigurationError(f"a log has at least 1 partition, not {self.partitions}")
        if self.tombstone_retention_s < self.compaction_delay_s:
            raise ConfigurationError(
                f"tombstone retention ({self.tombstone_retention_s} s) is shorter than the "
                f"compaction delay ({self.compaction_delay_s} s)",
                hint="TR-548 4.3 wants it as long or longer",
            )
        if self.retention_records is not None and self.retention_records < 1:
            raise ConfigurationError(f"a log keeps at least 1 record, not {self.retention_records}")

    @property
    def token_life_s(self) -> float:
        """How old a token may be for the stream to go on after it."""
        match self.strategy:
            case LogStorageStrategy.COMPACTED:
                return self.tombstone_retention_s
            case LogStorageStrategy.TRUNCATED:
                return self.retention_s
        return math.inf


def random_log_id() -> int:
    """An id that no log had before, so that no token of another one is known."""
    return secrets.randbits(62)


class Log:
    """One log. `encode(record) -> bytes` gives a record its `data` once its place is known."""

    def __init__(self, settings: LogSettings, now: Callable[[], float], log_id: int) -> None:
        self.settings = settings
        self.tokens = Tokens(log_id)
        self._now = now
        self._records: dict[int, LogRecord] = {}
        self._ordinals: list[int] = []
        self._latest: dict[str, LogRecord] = {}
        self._subtrees: dict[str, set[str]] = {}
        self._offsets = [0] * settings.partitions
        # Records that wait: for the end of the compaction delay (or of their retention), and
        # tombstones
        # for the end of theirs. Both are in the order of appending, so only the head is looked at.
        self._young: deque[LogRecord] = deque()
        self._tombstones: deque[LogRecord] = deque()
        self.next_ordinal = 0
        self.last_expired_tombstone: LogRecord | None = None

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[LogRecord]:
        """All records, oldest first."""
        return iter(self._records.values())

    @property
    def oldest(self) -> LogRecord | None:
        return next(iter(self._records.values()), None)

    @property
    def newest(self) -> LogRecord | None:
        return self._records.get(self.next_ordinal - 1)

    @property
    def compacted_until_s(self) -> float:
        """Of what was appended until then, some may have been compacted away."""
        if self.settings.strategy is not LogStorageStrategy.COMPACTED:
            return -math.inf
        return self._now() - self.settings.compaction_delay_s

    def latest(self, key: str) -> LogRecord | None:
        """The last record that states this key, if the log still has it."""
        return self._latest.get(key)

    def statements(self) -> list[LogRecord]:
        """The last record of each whole entity that the log still has."""
        parts = {key for keys in self._subtrees.values() for key in keys}
        return [record for key, record in self._latest.items() if key not in parts]

    def append(
        self, key: str, kind: LogRecordType, encode: Callable[[LogRecord], bytes], parent: str = ""
    ) -> LogRecord:
        """Append one record. `parent`: for a record of a part of an entity, that entity's key
        (3.8.2.2).
        """
        now = self._now()
        partition = zlib.crc32((parent or key).encode()) % self.settings.partitions
        ordinal = self.next_ordinal
        record = LogRecord(
            ordinal,
            key,
            kind,
            partition,
            self._offsets[partition],
            now,
            self.tokens.encode(ordinal, int(now * 1000), partition),
        )
        record.data = encode(record)
        self._offsets[partition] += 1
        self.next_ordinal += 1
        self._records[ordinal] = record
        self._ordinals.append(ordinal)
        self._young.append(record)
        if self.settings.strategy is LogStorageStrategy.COMPACTED:
            self._supersede(record, parent)
        else:
            self._latest[key] = record
        self.clean()
        return record

    def _supersede(self, record: LogRecord, parent: str) -> None:
        cleaner_point = record.appended_s - self.settings.compaction_delay_s
        keys = [record.key]
        if parent:
            self._subtrees.setdefault(parent, set()).add(record.key)
        if record.kind is LogRecordType.TOMBSTONE:
            self._tombstones.append(record)
            # A tombstone of an entity ends all records of its parts with it.
            prefix = record.key + TREE_SEPARATOR
            parts = self._subtrees.pop(record.key, None) or {
                key for key in self._subtrees.get(parent, ()) if key.startswith(prefix)
            }
            keys += [key for key in parts if key != record.key]
        for key in keys:
            older = self._latest.pop(key, None)
            if older is not None and older.appended_s <= cleaner_point:
                self._remove(older)
        self._latest[record.key] = record

    def clean(self) -> None:
        """Compact and truncate as far as the clock allows (TR-548 3.8.1.1, 3.8.1.2, 6.1)."""
        now = self._now()
        match self.settings.strategy:
            case LogStorageStrategy.COMPACTED:
                self._compact(now)
            case LogStorageStrategy.TRUNCATED:
                self._truncate(now)
            case _:
                self._young.clear()
        if len(self._ordinals) > 2 * len(self._records) + 64:
            self._ordinals = list(self._records)

    def _compact(self, now: float) -> None:
        cleaner_point = self.compacted_until_s
        while self._young and self._young[0].appended_s <= cleaner_point:
            record = self._young.popleft()
            if self._latest.get(record.key) is not record:
                self._remove(record)
        retention_point = now - self.settings.tombstone_retention_s
        while self._tombstones and self._tombstones[0].appended_s <= retention_point:
            record = self._tombstones.popleft()
            if self._latest.get(record.key) is record:
                self.last_expired_tombstone = record
                del self._latest[record.key]
                self._remove(record)

        if self.settings.forgets:
            self._forget(now)

    def _forget(self, now: float) -> None:
        """Lose what was stated too long ago, whether or not its entity lives (a finite
        record-retention, against 4.3.5).
        """
        oldest_allowed = now - self.settings.retention_s
        while (record := self.oldest) is not None and record.appended_s <= oldest_allowed:
            self._remove(record)
            if self._latest.get(record.key) is record:
                del self._latest[record.key]

    def _truncate(self, now: float) -> None:
        limit = self.settings.retention_records or math.inf
        oldest_allowed = now - self.settings.retention_s
        while self._young and (
            len(self._records) > limit or self._young[0].appended_s <= oldest_allowed
        ):
            record = self._young.popleft()
            self._remove(record)
            if self._latest.get(record.key) is record:
                del self._latest[record.key]

    def _remove(self, record: LogRecord) -> None:
        self._records.pop(record.ordinal, None)

    def start(self, token: str | None) -> tuple[int, Start]:
        """The ordinal to read from for a client's `start_from`, and which of the rules applied
        (5.8).
        """
        self.clean()
        oldest = self.oldest
        first = oldest.ordinal if oldest else self.next_ordinal
        if token is None:
            return first, Start.OLDEST
        if token == LATEST:
            return self.next_ordinal, Start.LATEST
        place = self.tokens.decode(token)
        if place is None or place.in_snapshot or place.ordinal >= self.next_ordinal:
            return first, Start.RESTARTED
        if place.appended_ms / 1000 <= self._now() - self.settings.token_life_s:
            return first, Start.RESTARTED
        if self.settings.strategy is LogStorageStrategy.TRUNCATED and first > place.ordinal + 1:
            return first, Start.RESTARTED
        return place.ordinal + 1, Start.RESUMED

    def back(self, ordinal: int, records: int) -> int:
        """The ordinal that lies `records` kept records before `ordinal`, or that of the oldest
        record.
        """
        index = bisect_left(self._ordinals, ordinal)
        while index and records:
            index -= 1
            if self._ordinals[index] in self._records:
                ordinal = self._ordinals[index]
                records -= 1
        return ordinal

    def read(
        self, ordinal: int, max_records: int = 512, max_bytes: int = 1 << 18
    ) -> list[LogRecord]:
        """Records from `ordinal` on in the order of appending, within both bounds (at least
        one).
        """
        self.clean()
        records: list[LogRecord] = []
        size_bytes = 0
        ordinals = self._ordinals
        for index in range(bisect_left(ordinals, ordinal), len(ordinals)):
            record = self._records.get(ordinals[index])
            if record is None:
                continue
            records.append(record)
            size_bytes += len(record.data)
            if len(records) >= max_records or size_bytes >= max_bytes:
                break
        return records

    def lost(self, ordinal: int, started_s: float, start: Start) -> bool:
        """Whether a reader at `ordinal` may have missed what it needs, so must be dropped (5.2.6,
        5.8).

        A reader that began at the oldest record is granted the tombstone retention to pass the old
        part of the log (5.2.3 step 6); but not past a tombstone removed ahead of it.
        """
        self.clean()
        settings = self.settings
        now = self._now()
        from_oldest = start in (Start.OLDEST, Start.RESTARTED)
        expired = self.last_expired_tombstone
        if expired is not None and expired.ordinal >= ordinal:
            # What had been compacted away before the reader began, it cannot have read.
            visible_since = started_s - settings.compaction_delay_s
            if not from_oldest or expired.appended_s >= visible_since:
                return True
        unread = self.read(ordinal, max_records=1)
        if not unread:
            return False
        match settings.strategy:
            case LogStorageStrategy.COMPACTED:
                granted = from_oldest and now - started_s < settings.tombstone_retention_s
                oldest_allowed = now - settings.tombstone_retention_s
                return not granted and unread[0].appended_s < oldest_allowed
            case LogStorageStrategy.TRUNCATED:
                return unread[0].ordinal > ordinal
        return False
