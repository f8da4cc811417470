"""Reads frames into records: fast where a frame has a usual shape, liberal where it has not.

Both ways end in `FrameDecoder._build_record`: the meaning of a record is decided in one place. The
fast way decodes the header into a struct and leaves the body undecoded; at the first surprise it
gives up, and the frame is read again record by record, so that one bad record does not take its
neighbours with it.

Where even the spelling is the usual one, a body stays undecoded until it is needed
(`FrameDecoder.decode_bodies`): in a storm over few entities, only the bodies that count in the end
are decoded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import groupby
from typing import Final

import msgspec

from instep.model.columns import CompactedAway
from instep.model.records import (
    DecodedRecords,
    Record,
    RecordChunk,
    RecordHeader,
    RecordType,
    Unreadable,
)
from instep.model.streams import Mode, StreamInfo
from instep.ports.plugin import Verifier
from instep_tapi.wire.authenticity import NotAuthentic, check_authenticity
from instep_tapi.wire.fast_columns import LazyColumns, decoded, lazy_columns
from instep_tapi.wire.fast_decode import check_utf8, split_exact, split_fast
from instep_tapi.wire.fast_fixed_width import fixed_width_columns
from instep_tapi.wire.framing import NO_BODY, BadRecord, Fields, split_liberal
from instep_tapi.wire.names import ANY_CLASS, MAX_NAME_CHARS, MAX_TEXT_CHARS
from instep_tapi.wire.record_body import decode_body, entity_of, uuid_of, with_header
from instep_tapi.wire.record_header import (
    LogRecordHeader,
    check_text,
    partition_and_offset,
    plain_members,
    read_header,
    read_record_type,
    text_of,
)
from instep_tapi.wire.subtree_filter import is_below
from instep_tapi.wire.times import BROKEN_FRACTION, MAX_TIME_CHARS, UNBROKEN_CHARS

__all__ = ["FrameDecoder", "decoder_for"]

MAX_PARTITIONS = 1_024
"""Partitions of one stream: the position states an offset for each."""
MAX_FRAME_RECORDS = 20_000
"""Most records of one frame that are read one by one."""
MAX_FRAME_UNREADABLE = 100
"""Most unreadable records of one frame that are kept one by one; with more, the frame is kept as a
whole.
"""
_PLACE_ENTRIES = 2
"""Of a full-log-record-offset-id, partition and offset are read; with more, all of it is kept."""
_MAX_PASSED_OVER = 255
_MAX_REASON_CHARS = 500


_encode = msgspec.json.Encoder().encode
_BAD_INPUT: Final = (ValueError, OverflowError, RecursionError, BadRecord)


class FrameDecoder:
    """Reads the frames of one stream (TR-548 3.10, 5.10).

    Args:
        stream: The stream's id, put into each record.
        with_uuid: Read the entity's own uuid too, for streams whose rows meet a baseline.
        whole: False where the provider's log-record-strategy is CHANGE_ONLY (3.8.2.2).
        verifier: Checks each record's authenticity token; only what passes is read.
        stated: Deviations of what was declared of the stream, told with the first frames.
        only: The classes that are kept (3.12), and ends that state no class; empty: all.
        below: The entities, by uuid, whose subtrees are kept (3.12); empty: all.
    """

    def __init__(
        self,
        stream: str,
        *,
        with_uuid: bool = False,
        whole: bool = True,
        verifier: Verifier | None = None,
        stated: Sequence[str] = (),
        only: Collection[str] = (),
        below: Collection[str] = (),
    ) -> None:
        self._stream = stream
        self._stated = stated
        self._only = frozenset(only)
        self._below = frozenset(below)
        self._with_uuid = with_uuid
        self._whole = whole
        self._verifier = verifier
        self._stamp: str | None = None
        self._stamp_us = 0
        self._partitions = {""}
        self._all_whole = whole
        # Where few bodies were needed recently, they are not even parsed beforehand.
        self._scanned_records = self._opened_records = 0
        # A stream whose frames never have a usual shape is seldom tried for one.
        self._columns_backoff = _FastPathBackoff()
        self._fast_backoff = _FastPathBackoff()
        self._fixed_width_backoff = _FastPathBackoff()

    @property
    def leaves_bodies(self) -> bool:
        """Whether few bodies were needed recently, as in a storm: then most stay undecoded."""
        return 2 * self._opened_records < self._scanned_records

    def read(self, frames: Sequence[bytes]) -> RecordChunk:
        """Records, unreadables and deviations of these frames, in order. Bad input never raises."""
        return self.scan(frames).decoded()

    def scan(self, frames: Sequence[bytes], size_bytes: int | None = None) -> RecordChunk:
        """The same, with bodies still to be opened where the frames have the usual spelling. Of a
        record that is not kept, the header is left. `size_bytes`: of all frames, where it is known.
        """
        chunk = self._scanned(frames, sum(map(len, frames)) if size_bytes is None else size_bytes)
        if not (self._only or self._below):
            return chunk
        chunk = chunk.decoded()
        kept = [one if self._keeps(one) else _header(one) for one in chunk.records]
        return msgspec.structs.replace(chunk, records=kept)

    def _keeps(self, record: RecordHeader) -> bool:
        classless = ("", ANY_CLASS)
        if not isinstance(record, Record):
            return False
        of_class = (
            not self._only
            or record.entity_class in self._only
            or (record.kind is not RecordType.CREATE_UPDATE and record.entity_class in classless)
        )
        return of_class and (not self._below or is_below(record, self._below))

    def _scanned(self, frames: Sequence[bytes], size_bytes: int) -> RecordChunk:
        deviations, self._stated = list(self._stated), ()
        if self._columns_backoff.is_due() and self._verifier is None:
            columns = self._decode_columns(frames)
            self._columns_backoff.note_result(succeeded=columns is not None)
            if columns is not None:
                counts, opens = dict(Counter(deviations)), self.decode_bodies
                return RecordChunk(columns, (), counts, size_bytes, opens, self._all_whole)
        records: list[Record] = []
        unreadable: list[Unreadable] = []
        for frame in frames:
            # With a verifier record by record: its own bytes are what is signed.
            if self._verifier is None and self._fast_backoff.is_due():
                known = len(deviations)
                try:
                    records += self._decode_fast(frame, deviations)
                except _BAD_INPUT:
                    del deviations[known:]
                    self._fast_backoff.note_result(succeeded=False)
                else:
                    self._fast_backoff.note_result(succeeded=True)
                    continue
            self._decode_liberal(frame, deviations, records, unreadable)
        return RecordChunk(
            records, unreadable, dict(Counter(deviations)), size_bytes, whole=self._all_whole
        )

    def decode_bodies(self, statements: Sequence[RecordHeader]) -> DecodedRecords:
        """Decode the bodies of records that `scan` returned. Bad input never raises."""
        self._opened_records = len(statements)
        deviations: list[str] = []
        try:
            records = self._decoded(statements, deviations)
        except _BAD_INPUT:
            return self._decode_bodies_by_frame(statements)
        return DecodedRecords(records, (), dict(Counter(deviations)))

    def _decode_bodies_by_frame(self, statements: Sequence[RecordHeader]) -> DecodedRecords:
        """Decode frame by frame; a frame that cannot be read is read again the liberal way."""
        records: list[Record] = []
        unreadable: list[Unreadable] = []
        deviations: list[str] = []
        for frame, members in groupby(statements, lambda one: getattr(one, "frame", b"")):
            group = list(members)
            known = len(deviations)
            try:
                records += self._decoded(group, deviations)
            except _BAD_INPUT:
                del deviations[known:]
                read: list[Record] = []
                self._decode_liberal(frame, deviations, read, unreadable)
                asked = {(one.key, one.token) for one in group}
                records += [one for one in read if (one.key, one.token) in asked]
        return DecodedRecords(records, unreadable, dict(Counter(deviations)))

    def _decoded(
        self, statements: Iterable[RecordHeader], deviations: list[str]
    ) -> Sequence[Record]:
        with_uuid, whole = self._with_uuid, self._whole
        if isinstance(statements, LazyColumns):
            return statements.opened(deviations, with_uuid=with_uuid, whole=whole)
        return [decoded(one, deviations, with_uuid=with_uuid, whole=whole) for one in statements]

    def _decode_columns(self, frames: Sequence[bytes]) -> LazyColumns | None:
        columns = None
        if self.leaves_bodies and self._fixed_width_backoff.is_due():
            with suppress(*_BAD_INPUT):
                columns = fixed_width_columns(self._stream, frames, self._times_us)
            self._fixed_width_backoff.note_result(succeeded=columns is not None)
        try:
            if columns is None:
                exact = split_exact(frames, with_bodies=not self.leaves_bodies)
                if exact is None or not exact.headers:
                    return None
                columns = lazy_columns(self._stream, exact, self._times_us)
            if columns is not None and columns.partition not in self._partitions:
                self._add_partition(columns.partition)
        except _BAD_INPUT:
            return None
        if columns is not None:
            self._scanned_records = len(columns)
        return columns

    def _times_us(self, stamps: Sequence[str]) -> list[int]:
        """Under load many records were appended in one millisecond: a time is read once."""
        times_us = {stamp: _time_us(stamp) for stamp in set(stamps)}
        return list(map(times_us.__getitem__, stamps))

    def _decode_fast(self, frame: bytes, deviations: list[str]) -> list[Record]:
        record = self._build_record
        records: list[Record] = []
        for item in split_fast(check_utf8(frame), deviations):
            header = item.log_record_header
            stamp = header.log_append_time_stamp
            if stamp != self._stamp:
                self._stamp, self._stamp_us = stamp, _time_us(stamp)
            records.append(record(header, self._stamp_us, item.log_record_body, deviations))
        return records

    def _decode_liberal(
        self,
        frame: bytes,
        deviations: list[str],
        records: list[Record],
        unreadable: list[Unreadable],
    ) -> None:
        try:
            items = split_liberal(frame)
        except BadRecord as bad:
            unreadable.append(Unreadable(self._stream, frame, str(bad)))
            return
        if len(items) > MAX_FRAME_RECORDS:
            reason = f"{len(items):,} records in one frame; at most {MAX_FRAME_RECORDS:,} are taken"
            unreadable.append(Unreadable(self._stream, frame, reason))
            return
        bad_records: list[Unreadable] = []
        for item in items:
            raw = bytes(item)
            record_deviations: list[str] = []
            try:
                records.append(self._decode_one(raw, record_deviations, top=raw is frame))
            except NotAuthentic as bad:
                deviations.append(bad.deviation)
                reason = str(bad)
            except BadRecord as bad:
                reason = str(bad)
            except RecursionError:
                reason = "JSON nested too deeply"
            except (ValueError, OverflowError) as error:
                reason = f"malformed: {error}"[:_MAX_REASON_CHARS]
            else:
                deviations += record_deviations
                continue
            if len(bad_records) <= MAX_FRAME_UNREADABLE:
                bad_records.append(Unreadable(self._stream, raw, reason, _token_of(raw)))
        if len(bad_records) > MAX_FRAME_UNREADABLE:
            reason = (
                f"more than {MAX_FRAME_UNREADABLE} records of the frame: {bad_records[0].reason}"
            )
            bad_records = [Unreadable(self._stream, frame, reason)]
        unreadable += bad_records

    def _decode_one(self, raw: bytes, deviations: list[str], *, top: bool) -> Record:
        """`top`: whether the record is the whole text, and not in a list."""
        raw.decode()
        if self._verifier is not None:
            check_authenticity(raw, self._verifier)
        members = plain_members(raw, deviations, top=top)
        if "log-record-header" not in members:
            raise BadRecord("no log-record-header: not a log-record (TR-548 3.10)")
        header, appended_at_us, rest = read_header(members["log-record-header"], deviations)
        body = decode_body(members.get("log-record-body", NO_BODY))
        return self._build_record(header, appended_at_us, body, deviations, rest)

    def _build_record(
        self,
        header: LogRecordHeader,
        appended_at_us: int,
        body: Fields | None,
        deviations: list[str],
        rest: Fields | None = None,
    ) -> Record:
        """`rest`: members of the header that are not read; kept in the envelope."""
        token, key = header.token, header.entity_key
        if not 0 < len(token) <= MAX_TEXT_CHARS or "\0" in token:
            check_text("token", token)
        if not 0 < len(key) <= MAX_TEXT_CHARS or "\0" in key:
            check_text("entity-key", key)
        kind, whole, spelling = read_record_type(header.record_type)
        if spelling:
            deviations += spelling
        partition, offset = partition_and_offset(header.full_log_record_offset_id, deviations)
        if partition not in self._partitions:
            self._add_partition(partition)
        entity_class, content, envelope, ends = entity_of(
            kind, body, header.record_type, deviations
        )
        place = header.full_log_record_offset_id
        if len(place) > _PLACE_ENTRIES:
            rest = {**(rest or {}), "full-log-record-offset-id": msgspec.Raw(_encode(place))}
        if rest:
            envelope = with_header(envelope, rest)
        whole = whole and self._whole
        if not whole:
            self._all_whole = False
        uuid = uuid_of(content, envelope) if self._with_uuid and content else ""
        return Record(
            self._stream,
            key,
            kind,
            token,
            appended_at_us,
            partition,
            offset,
            entity_class,
            content,
            envelope,
            ends,
            uuid,
            whole,
        )

    def _add_partition(self, partition: str) -> None:
        if len(partition) > MAX_NAME_CHARS or "\0" in partition:
            raise BadRecord(f"{partition[:64]!r} with {len(partition)} characters is no partition")
        if len(self._partitions) > MAX_PARTITIONS:
            raise BadRecord(f"more than {MAX_PARTITIONS:,} partitions")
        self._partitions.add(partition)


class _FastPathBackoff:
    """A fast path that is tried less and less often while it fails."""

    def __init__(self) -> None:
        self._skips = self._skips_left = 0

    def is_due(self) -> bool:
        if self._skips_left:
            self._skips_left -= 1
            return False
        return True

    def note_result(self, *, succeeded: bool) -> None:
        self._skips = 0 if succeeded else min(2 * self._skips + 1, _MAX_PASSED_OVER)
        self._skips_left = self._skips


def _time_us(stamp: str) -> int:
    # Python takes any character for the T: 20211111102220Z would be 02:22, eight hours before it.
    moment = datetime.fromisoformat(stamp) if stamp[10:11] == "T" else None
    long = len(stamp) > UNBROKEN_CHARS
    broken = long and (len(stamp) > MAX_TIME_CHARS or BROKEN_FRACTION.search(stamp))
    if moment is None or moment.tzinfo is None or broken:
        raise BadRecord("an unusual time is left to the liberal decoder")
    return round(moment.timestamp() * 1_000_000)


def decoder_for(
    stream: StreamInfo, verifier: Verifier | None = None, stated: Sequence[str] = ()
) -> FrameDecoder:
    """A reader as this stream needs it, by its mode and whether it states changes alone."""
    by_change = stream.partial_updates
    with_uuid = stream.mode is Mode.BASELINE or by_change
    return FrameDecoder(
        stream.id,
        with_uuid=with_uuid,
        whole=not by_change,
        verifier=verifier,
        stated=stated,
        only=stream.details.get("only", ()),
        below=stream.details.get("below", ()),
    )


def _header(record: RecordHeader) -> CompactedAway:
    return CompactedAway(*(getattr(record, name) for name in RecordHeader.__struct_fields__))


def _token_of(raw: bytes) -> str | None:
    """The token of a record that cannot be read, if at least the token can."""
    try:
        token = text_of(plain_members(plain_members(raw, [])["log-record-header"], []), "token", [])
        check_text("token", token)
    except (ValueError, KeyError, RecursionError, BadRecord):
        return None
    return token
