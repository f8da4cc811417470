"""What must hold after every transaction, whatever happened before it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from instep import Phase
from instep.model.batches import Batch
from instep.model.position import Position, decode_position
from instep.model.records import Record
from instep.model.streams import SweepEstimate
from instep_tapi.facts.names import LogRecordType
from instep_tapi_provider.log import LogRecord
from tests.simulation.alignment.provider import Instance, SimLog
from tests.simulation.alignment.world import World

__all__ = ["Checks", "Row", "ViolationError"]

_ENTITIES: Final = """
    SELECT key, id, token, partition, "offset", appended_at_us, lineage, attempt, uuid, body,
           envelope
    FROM instep_entity
"""
_US: Final = 1_000_000
_SILENCE_PROVES_NOTHING: Final = ("truncated", "full-history", "emulated")


_ID: Final = 1
"""The column of the id."""


class ViolationError(AssertionError):
    """An invariant was violated."""


class Row(NamedTuple):
    """An entity as stored."""

    key: str
    id: int
    token: str
    partition: str
    offset: int
    appended_at_us: int
    lineage: int
    attempt: int
    uuid: str
    body: bytes
    envelope: bytes


class Checks:
    """Checks the store through a connection of its own, from outside."""

    def __init__(self, world: World, path: Path, guard_records: int) -> None:
        self._world = world
        self._guard_records = guard_records
        self._database = sqlite3.connect(path, isolation_level=None)
        self._found: list[tuple[Any, ...]] = []
        self.rows: dict[str, Row] = {}
        """By entity-key. A row that stays as it is stays the same object."""
        self.position = Position()
        self._starts: set[tuple[str, int]] = set()
        """Origin and provider's time of every opening from the start of a log."""
        self._first_offsets: dict[tuple[str, int], dict[int, int]] = {}
        """The same of the others, with the offset that came first in each partition."""
        self._serves: dict[tuple[str, int], Instance] = {}
        """Who serves an opening."""
        self._attempt_begins_at: dict[int, int] = {}
        """Of an attempt that took a stream over, where that began."""
        self._began_s: dict[int, float] = {}
        """When the first commit of each attempt was made, by the time of the loop."""
        self._counted: dict[int, SweepEstimate] = {}
        self._released: set[int] = set()
        self._checked: dict[int, int] = {}
        self._furthest: dict[SimLog, int] = {}
        """The furthest offset that was ever committed, of logs that have one partition."""
        self._openings = self._committed_openings = 0
        """How often a stream was opened from its start, until now and until the last commit."""
        self._mixed_attempt = -1
        """An attempt with a position that may mix two logs: one was lost behind a token."""
        self.commits = 0
        self.swept = 0

    def close(self) -> None:
        self._database.close()

    # -- what is reported --------------------------------------------------------------------------

    def process_started(self) -> None:
        # What a snapshot has left out, ended before it, cannot be deduced from what is missing.
        if self._world.log_options.storage != "emulated":
            self._checked.clear()

    def opened(
        self, instance: Instance, token: str | None, provider_us: int, *, restarted: bool
    ) -> None:
        """A stream was opened: after a token, or from its start."""
        opening = (instance.info().origin, provider_us)
        # The provider's clock tells whole seconds: an earlier opening may have the same.
        self._first_offsets.pop(opening, None)
        if token is None or restarted:
            self._starts.add(opening)
        if token is None:
            self._openings += 1
            if instance.empty and self._world.log_options.baseline:
                # What ends between the baseline and the first record is stated nowhere.
                self._world.must_realign = True
                self._world.trace("this log is not filled yet")
            return
        another = instance.log.tokens.decode(token) is None
        # A snapshot does not state what ended before it.
        if another or (restarted and self._world.log_options.storage == "emulated"):
            self._mixed_attempt = self.position.attempt
            if self._is_hidden(instance):
                self._world.must_realign = True
                self._world.trace("this stream begins where ours would go on")

    def restarted(self, instance: Instance) -> None:
        """The provider has restarted the stream on its connection: records come again."""
        self._checked.clear()
        self._mixed_attempt = self.position.attempt
        if self._is_hidden(instance):
            self._world.must_realign = True
            self._world.trace("this stream begins where ours would go on")

    def came(self, instance: Instance, opened_us: int, record: LogRecord) -> None:
        """A record came on the connection that was opened then."""
        opening = (instance.info().origin, opened_us)
        self._serves[opening] = instance
        firsts = self._first_offsets.setdefault(opening, {})
        firsts.setdefault(record.partition, record.offset)

    def _holds_nothing_before(self, opening: tuple[str, int], firsts: dict[int, int]) -> bool:
        """Whether a stream that began there states every entity that is stored, as far as its first
        record can show, or every one that the log has now.
        """
        partition, offset = next(iter(firsts.items()), (-1, 0))
        if partition < 0:
            return False
        if self._serves[opening].oldest_offsets().get(partition, offset) >= offset:
            return True
        return all(
            row.offset >= offset
            for row in self.rows.values()
            if row.lineage == self.position.lineage and row.partition == str(partition)
        )

    def _is_hidden(self, instance: Instance) -> bool:
        """Whether a first record may stand, by chance, right behind the last one that was read:
        that is what a stream looks like which goes on (A2).
        """
        oldest = instance.oldest_offsets()
        committed = {int(name): offset for name, offset in self.position.offsets.items() if name}
        following = instance.log._offsets
        hidden = any(
            oldest.get(at, following[at]) == offset + 1 for at, offset in committed.items()
        )
        # Nothing comes of a log that is empty; silence is no finding where nothing is compacted.
        silent = not oldest and self._world.log_options.storage in _SILENCE_PROVES_NOTHING
        return self._world.log_options.offsets and (hidden or silent)

    def counted(self, attempt: int, estimate: SweepEstimate) -> None:
        self._counted[attempt] = estimate

    def released(self, attempt: int) -> None:
        self._released.add(attempt)

    # -- what is checked -------------------------------------------------------------------------

    def attempt(self) -> tuple[int, int]:
        """The attempt that was committed last: its number, and that of its opening. One that has
        read nothing keeps its number when it is begun again.
        """
        return self.position.attempt, self._committed_openings

    def fetch(self) -> dict[str, Row]:
        found = self._database.execute(_ENTITIES).fetchall()
        if found == self._found:
            return self.rows
        before = {row.id: row for row in self.rows.values()}
        rows: dict[str, Row] = {}
        for each in found:
            row = before.get(each[_ID])
            if row != each:
                row = Row(*each)
            assert row is not None
            key = self._world.provider.key_of(row.key, row.envelope)
            if key in rows:
                raise ViolationError(f"{key} has two rows")
            rows[key] = row
        return rows

    def after_commit(self, batch: Batch, failed: BaseException | None) -> None:
        """Call after each transaction that should commit a batch, whether it did or not."""
        before = self.rows
        # A record that cannot be read marks its entity, where its key can be read (A17).
        silent = not (failed or batch.records or batch.unreadable or batch.sweep is not None)
        after = before if silent else self.fetch()
        if failed is not None:
            self._require(before == after, f"a failed commit left something: {failed}")
            self._world.trace(f"commit failed: {type(failed).__name__}")
            return
        self.commits += 1
        self._committed_openings = self._openings
        self._position_moves(batch)
        if after is not before:
            self._marks(before, after, batch)
            self._rows_are_stated(before, after)
            self._vanished(before, after, batch)
        moved = batch.position.token != self.position.token
        aligned = batch.position.phase is Phase.ALIGNED is not self.position.phase
        if aligned and self._world.log_options.baseline:
            # What was compared with a baseline is decided now: all of it is checked again.
            self._checked.clear()
        self.rows, self._found, self.position = after, list(after.values()), batch.position
        self._began_s.setdefault(batch.position.attempt, self._world.loop.time())
        if moved or batch.records:
            self._note_furthest(batch)
            self._not_ahead()

    def _require(self, truth: bool, message: str) -> None:
        if not truth:
            raise ViolationError(message)

    def _position_moves(self, batch: Batch) -> None:
        old, new = self.position, batch.position
        (stored,) = self._database.execute("SELECT position FROM instep_stream").fetchone()
        if stored.encode() != msgspec.json.encode(new):
            # What only a commit can find out.
            found = decode_position(stored)
            added = {
                "baseline_pending": found.baseline_pending,
                "unknown": found.unknown,
                "unproven": found.unproven,
            }
            owing = msgspec.structs.replace(new, **added)
            same = stored.encode() == msgspec.json.encode(owing)
            if not self._world.log_options.records:
                same = same and not found.unknown
            self._require(same, f"the stored position is not the batch's: {stored} / {new}")
        if new.ordinal != old.ordinal + 1:
            raise ViolationError(f"ordinal {old.ordinal} to {new.ordinal}")
        for name in ("attempt", "lineage", "records"):
            if getattr(new, name) < getattr(old, name):
                raise ViolationError(f"{name} went back")
        self._world.trace(
            f"commit {new.ordinal} {new.phase} attempt={new.attempt} lineage={new.lineage} "
            f"records={len(batch.records)} offsets={list(new.offsets.values())}"
            + (f" sweep@{batch.sweep.cursor}" if batch.sweep else "")
        )
        if new.attempt != old.attempt:
            self._checked.clear()
            if self._world.reliable_again:
                self._world.unreliable.clear()
            opening = (new.origin, new.attempt_started_at_us)
            firsts = self._first_offsets.get(opening, {})
            self._attempt_begins_at = {} if opening in self._starts else firsts
            self._require(
                opening in self._starts or self._holds_nothing_before(opening, firsts),
                f"attempt {new.attempt} began on a resumed stream",
            )

    def _marks(self, before: dict[str, Row], after: dict[str, Row], batch: Batch) -> None:
        attempt = batch.position.attempt
        for key, row in after.items():
            old = before.get(key)
            if old is row:
                continue
            if old is not None:
                self._require(row.attempt >= old.attempt, "a mark went back")
                if _is_older(row, old):
                    raise ViolationError(f"{key} went back from {old} to {row}")
            self._require(row.attempt <= attempt, "a mark is of an attempt to come")
        # A key that is no uuid is a place: there are several of that uuid.
        uuids = [row.uuid for key, row in after.items() if row.uuid and ":" not in key]
        self._require(len(uuids) == len(set(uuids)), "one entity has two rows")

    def _rows_are_stated(self, before: dict[str, Row], after: dict[str, Row]) -> None:
        """What a row holds was stated of this very entity."""
        for key, row in after.items():
            if before.get(key) is not row:
                uuid = key.rpartition(":")[2]
                if not row.body.startswith(b'{"uuid":"%s",' % uuid.encode()):
                    raise ViolationError(f"{key} holds the body {row.body!r}")

    def _vanished(self, before: dict[str, Row], after: dict[str, Row], batch: Batch) -> None:
        position = batch.position
        ended: dict[str, list[Record]] = {}
        for record in batch.records:
            if record.ends:
                ended.setdefault(record.key, []).append(record)
        for key in ended.keys() & before.keys() - after.keys():
            # On one connection, once aligned, the order of arrival counts, and no clock (A21).
            compares = position.phase is not Phase.ALIGNED or position.offsets
            older = compares and all(_is_before(end, before[key], position) for end in ended[key])
            if older:
                raise ViolationError(f"{key} was ended by a record from before {before[key]}")
        # A row that a baseline has by uuid may be stated at another place: it has moved.
        moved = {row.key for row in after.values()}
        gone = [
            key
            for key, row in before.items()
            if key not in after and key not in ended and (row.key == key or row.key not in moved)
        ]
        if batch.sweep is not None:
            self._may_sweep(batch)
        for key in gone:
            row = before[key]
            self._require(batch.sweep is not None, f"{key} is gone without end or sweep")
            self._require(row.attempt < position.attempt, f"{key} was marked and is swept")
            self._require(
                not self._lives(key, position), f"{key} is stated all the time and is swept"
            )
            self.swept += 1
            self._world.trace(f"swept {key}")

    def _may_sweep(self, batch: Batch) -> None:
        """A sweep is due only when what it removes was counted, and let pass (A6)."""
        assert batch.sweep is not None
        attempt = batch.position.attempt
        self._require(batch.position.phase is Phase.SWEEPING, "a sweep in another phase")
        self._require(attempt in self._counted, f"attempt {attempt} sweeps and has not counted")
        if batch.sweep.cursor or attempt in self._released or batch.sweep.holds:
            return
        estimate = self._counted[attempt]
        guarded = estimate.unmarked > self._guard_records and estimate.unmarked > estimate.total / 2
        self._require(not guarded, f"a sweep of {estimate} was not held")

    def _lives(self, key: str, position: Position) -> bool:
        """Whether the log being read states the entity since before the attempt began. Not known
        where the provider's clock was set since then.
        """
        if self._world.provider_set_s >= self._began_s.get(position.attempt, 0.0):
            return False
        for instance in self._world.provider.instances:
            if instance.info().origin == position.origin and key not in self._world.unreliable:
                since_s = instance.log.stated_since.get(key)
                if since_s is not None:
                    return since_s * _US < position.attempt_started_at_us
        return False

    def _note_furthest(self, batch: Batch) -> None:
        """Note what a batch has come to, where what it delivers again makes its position lie before
        that.
        """
        if self._world.log_options.offsets:
            return
        for record in batch.records:
            if (found := self._log_of(record.token)) is not None:
                log, ordinal = found
                self._furthest[log] = max(log.offset_of(ordinal), self._furthest.get(log, -1))

    def _not_ahead(self) -> None:
        """Rule A1: all that lies up to the position is in the store."""
        position, options = self.position, self._world.log_options
        if position.token is None or position.attempt == self._mixed_attempt:
            return
        found = self._log_of(position.token)
        if found is None:
            return
        log, ordinal = found
        committed = {int(name): offset for name, offset in position.offsets.items() if name}
        if not committed:
            committed = {0: log.offset_of(ordinal)}
        if options.storage == "emulated" and position.phase is not Phase.ALIGNED:
            # A snapshot states the last only: what was before it lies behind the position as well.
            self._checked = committed
            return
        for partition, offset in committed.items():
            begin = max(
                self._checked.get(partition, -1) + 1, self._attempt_begins_at.get(partition, 0)
            )
            for record in log.history[partition][begin : offset + 1]:
                if record is None:
                    continue
                if log.last_before(record.key, offset) is record and log.holds(record):
                    self._is_stored(log, record)
        self._checked = committed
        self._furthest[log] = max(committed.get(0, -1), self._furthest.get(log, -1))

    def _ended_further_on(self, log: SimLog, record: LogRecord) -> bool:
        """Whether the store is ahead of the position: without offsets it goes back with a provider
        that does.
        """
        if self._world.log_options.offsets:
            return False
        last = log.last_before(record.key, self._furthest.get(log, -1))
        return last is not None and last.kind is not LogRecordType.CREATE_UPDATE

    def _left_out(self, log: SimLog, record: LogRecord) -> bool:
        """Whether a snapshot has left the entity out: it had ended by then."""
        later = log.by_key[record.key]
        return self._world.log_options.storage == "emulated" and any(
            one.offset > record.offset and _ends(one) for one in later
        )

    def _log_of(self, token: str) -> tuple[SimLog, int] | None:
        for instance in self._world.provider.instances:
            place = instance.log.tokens.decode(token)
            if place is not None:
                return instance.log, place.ordinal
        return None

    def _is_stored(  # noqa: C901, PLR0912 - one case a reason
        self, log: SimLog, record: LogRecord
    ) -> None:
        key = record.key
        if key in self._world.unreliable:
            return
        row = self.rows.get(key)
        appended_us = int(record.appended_s * 1000) * 1000
        baseline = self._world.log_options.baseline
        if _ends(record):
            newer = row is not None and (
                row.offset > record.offset
                if row.offset >= 0 and row.lineage == self.position.lineage
                else row.appended_at_us >= appended_us
            )
            # What ended before the opening of a baseline is not stated by it: the sweep ends it.
            due = row is not None and baseline and row.attempt < self.position.attempt
            # What it states may have been made anew since, which the stream has not come to yet.
            anew = row is not None and not row.token and log.by_key[key][-1] is not record
            if not (row is None or newer or due or (baseline and anew)):
                raise ViolationError(f"the position is ahead: {_place(record)} is not done")
            return
        if baseline and log.by_key[key][-1] is not record:
            # A baseline may have shown what the stream has not come to yet.
            return
        if baseline and row is not None and row.attempt < self.position.attempt:
            # What was stated before the opening of a baseline and is not shown by it: as above.
            before = appended_us <= self.position.attempt_started_at_us
            if not before:
                raise ViolationError(f"the position is ahead: {_place(record)} is not marked")
            return
        if row is None and (self._ended_further_on(log, record) or self._left_out(log, record)):
            return
        if row is None:
            raise ViolationError(f"the position is ahead: {_place(record)} is not stored")
        if not row.token:
            # A baseline is dated by an estimate of the provider's clock; what it shows is not.
            # Until its sweep, the clock may turn out to have been set.
            decided = self.position.phase is Phase.ALIGNED
            shown = self._world.provider.states(record.data, row.body)
            if decided and not shown:
                raise ViolationError(f"{_place(record)} is not what the baseline shows")
            return
        if row.offset >= 0 and row.lineage == self.position.lineage:
            if row.offset < record.offset:
                raise ViolationError(f"{_place(record)} is stored as of {row.offset}")
        elif row.appended_at_us < appended_us:
            raise ViolationError(f"{_place(record)} is stored as of before")


def _place(record: LogRecord) -> str:
    return f"{record.kind} of {record.key} at {record.partition}/{record.offset}"


def _ends(record: LogRecord) -> bool:
    return record.kind is not LogRecordType.CREATE_UPDATE or b'"CLEAR"' in record.data


def _is_older(row: Row, old: Row) -> bool:
    """Whether a row went back in its own log (A3)."""
    if row.lineage != old.lineage or row.id != old.id or not (row.token and old.token):
        return False
    if row.offset >= 0 and old.offset >= 0 and row.partition == old.partition:
        return row.offset < old.offset
    return row.appended_at_us < old.appended_at_us


def _is_before(record: Record, row: Row, position: Position) -> bool:
    """Whether a record lies before what is stored, both being of one log (A3)."""
    if row.lineage != position.lineage:
        return False
    if row.offset >= 0 and record.offset >= 0 and row.partition == record.partition:
        return record.offset < row.offset
    return record.appended_at_us < row.appended_at_us
