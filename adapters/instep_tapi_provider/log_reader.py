"""A client's way through a stream's log: where it starts, what comes next, and when it is lost. No
I/O.

The log is read when there is room to send, never ahead of the client: a slow client slips back in
the log, past the compaction delay to the tombstone retention, as TR-548 5.2.5 and 5.2.6 have it.
"""

from collections.abc import Sequence
from dataclasses import replace

from instep_tapi.facts.names import LogRecordType
from instep_tapi_provider.faults import Faults
from instep_tapi_provider.log import Log, LogRecord, Start
from instep_tapi_provider.stream import Stream

# Records are shuffled within windows of so many ordinals; a resume goes back to the window's first.
SHUFFLE_WINDOW_RECORDS = 64


class LogReader:
    """Reads one stream for one client.

    `start` names the rule of 5.8 that applied; `position` is the ordinal that is read next.
    """

    def __init__(
        self, stream: Stream, start_from: str | None, faults: Faults, now_s: float
    ) -> None:
        self._stream = stream
        self._faults = faults
        self.log: Log = stream.log
        self._started_s = now_s
        self.position, self.start = self.log.start(start_from)
        if faults.expire_tokens and self.start is Start.RESUMED:
            self.position, self.start = self.log.start(None)[0], Start.RESTARTED
        self._snapshot: list[str] = []
        self._complete_at = self.log.next_ordinal - 1
        self._knows_from = self._known_from(start_from)
        if stream.settings.emulated and self.start in (Start.OLDEST, Start.RESTARTED):
            # Current state first, then what changed since now; what changes meanwhile comes twice.
            self._snapshot = stream.keys_by_last_change()[::-1]
            self.position = self.log.next_ordinal
        if self.start is Start.RESUMED:
            self._rewind()
        deviation = faults.deviation
        if deviation is not None and deviation.begins is not None:
            self.position = deviation.begins(self.log, self.position, self.start)

    def _rewind(self) -> None:
        if self._faults.shuffle_partitions:
            token_ordinal = self.position - 1
            window_first = token_ordinal - token_ordinal % SHUFFLE_WINDOW_RECORDS
            oldest = self.log.oldest
            self.position = max(window_first, oldest.ordinal if oldest else 0)
        if self._faults.rewind_records:
            self.position = self.log.back(self.position, self._faults.rewind_records)

    def lost(self) -> bool:
        """Whether the client must be dropped, having fallen too far behind or its log being
        gone.
        """
        if self.log is not self._stream.log:
            return True
        deviation = self._faults.deviation
        if deviation is not None and deviation.keeps_lost:
            return False
        return self.log.lost(self.position, self._started_s, self.start)

    def overflow(self, queue_records: int) -> None:
        """Lose what waits for the client beyond so many records."""
        self.position = max(self.position, self.log.next_ordinal - queue_records)

    def read(self, max_records: int = 512, max_bytes: int = 1 << 18) -> Sequence[LogRecord]:
        """The records to send next, none when the client has them all."""
        found = self._read(max_records, max_bytes)
        if (deviation := self._faults.deviation) is not None:
            return deviation.records(self.log, found, self.start, self._stream.now())
        return found

    def _read(self, max_records: int, max_bytes: int) -> Sequence[LogRecord]:
        if self._snapshot:
            return self._read_snapshot(max_records)
        records = self.log.read(self.position, max_records, max_bytes)
        if records:
            self.position = records[-1].ordinal + 1
        if self._faults.shuffle_partitions:
            records.sort(key=_shuffled)
        return [self._as_change(record) for record in records]

    def _known_from(self, start_from: str | None) -> int:
        """The ordinal from which the client knows the entities that records are about: it has read
        all before, and nothing of that was compacted away (v3.2 5.2).
        """
        place = self.log.tokens.decode(start_from) if start_from else None
        if place is None or self.start is not Start.RESUMED:
            return self.log.next_ordinal
        whole = place.appended_ms / 1000 > self.log.compacted_until_s
        return self.position if whole else self.log.next_ordinal

    def _as_change(self, record: LogRecord) -> LogRecord:
        """A record as the client is to get it: as a CHANGE, if it has one and the client knows what
        it changes. One that fell behind the compaction delay may have missed something.
        """
        if not record.change or record.ordinal < self._knows_from:
            return record
        if record.appended_s <= self.log.compacted_until_s:
            return record
        return replace(record, kind=LogRecordType.CHANGE, data=record.change)

    def _read_snapshot(self, max_records: int) -> Sequence[LogRecord]:
        """The next page of current state, as it is now. Its tokens do not resume, but for the last
        one.
        """
        page: list[LogRecord] = []
        while self._snapshot and len(page) < max_records:
            statement = self._stream.entities.get(self._snapshot.pop())
            if statement is None or statement.record is None:
                continue
            record = statement.record
            complete = not self._snapshot
            token = self.log.tokens.encode(
                self._complete_at if complete else record.ordinal,
                int((self._started_s if complete else record.appended_s) * 1000),
                record.partition,
                in_snapshot=not complete,
            )
            data = record.data.replace(record.token.encode(), token.encode(), 1)
            page.append(replace(record, token=token, data=data))
        return page


def _shuffled(record: LogRecord) -> tuple[int, int, int]:
    """Partitions one after the other within a window; the order within a partition stays."""
    return record.ordinal // SHUFFLE_WINDOW_RECORDS, -record.partition, record.ordinal
