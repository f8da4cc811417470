"""Reads frames into records: fast where a frame has a usual shape, liberal where it has not.

Both ways meet in `Reader._record`: what a record means is decided once. The fast way decodes the
header into a struct and leaves the body undecoded; at the first surprise it gives up, and the frame
is read again record by record, so that one bad record does not take its neighbours with it.

Where even the spelling is the usual one, a body stays sealed until somebody asks for it
(`Reader.open`): of a storm over few entities, only what counts in the end is opened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby
from typing import Final

from instep.ports import Mode, StreamInfo, Verifier
from instep.records import Delivery, Opened, Record, Statement, Unreadable
from instep_tapi.authenticity import NotAuthentic, check_authenticity
from instep_tapi.frames import (
    NO_BODY,
    BadRecord,
    Fields,
    Header,
    split_exact,
    split_fast,
    split_liberal,
)
from instep_tapi.headers import (
    MAX_OFFSET,
    check_text,
    place_of,
    plain_members,
    read_header,
    record_kind,
    text_of,
)
from instep_tapi.names import (
    MAX_NAME_CHARS,
    MAX_TEXT_CHARS,
)
from instep_tapi.sealed import EXACT_KINDS, Sealed, decode_body, entity_of, unsealed, uuid_of
from instep_tapi.times import MAX_TIME_CHARS

__all__ = ["Reader", "reader_of"]

MAX_PARTITIONS = 1_024
"""Partitions of one stream: the position states an offset for each."""
MAX_FRAME_RECORDS = 20_000
"""Records of one frame that are looked at one by one."""
MAX_FRAME_UNREADABLE = 100
"""Records of one frame that are kept one by one; of more, the frame is kept as a whole."""
_MAX_LIBERAL_RUN = 255
_MAX_REASON_CHARS = 500


_BAD_INPUT: Final = (ValueError, OverflowError, RecursionError, BadRecord)


class Reader:
    """Reads the frames of one stream (TR-548 3.10, 5.10).

    Args:
        stream: The stream's id, put into each record.
        with_uuid: Read the entity's own uuid too, for streams whose rows meet a baseline.
        whole: False where the provider's log-record-strategy is CHANGE_ONLY (3.8.2.2).
        verifier: Checks each record's authenticity token; only what passes is read.
    """

    def __init__(
        self,
        stream: str,
        *,
        with_uuid: bool = False,
        whole: bool = True,
        verifier: Verifier | None = None,
    ) -> None:
        self._stream = stream
        self._with_uuid = with_uuid
        self._whole = whole
        self._verifier = verifier
        # Under load many records were appended in one millisecond: a time is read once.
        self._stamp, self._stamp_us = "", 0
        self._partitions = {""}
        self._all_whole = whole
        # A stream whose frames never have a usual shape is seldom tried for one.
        self._liberal_run = self._liberal_left = 0

    def read(self, frames: Iterable[bytes]) -> Delivery:
        """Records, unreadables and deviations of these frames, in order. Bad input never raises."""
        delivery = self.peek(frames)
        opened = delivery.opened()
        deviations = Counter(delivery.deviations) + Counter(opened.deviations)
        return Delivery(
            opened.records,
            [*delivery.unreadable, *opened.unreadable],
            dict(deviations),
            delivery.size_bytes,
        )

    def peek(self, frames: Iterable[bytes]) -> Delivery:
        """The same, with bodies still to be opened where the frame has the usual spelling."""
        records: list[Statement] = []
        unreadable: list[Unreadable] = []
        odd: list[str] = []
        size_bytes = 0
        for frame in frames:
            size_bytes += len(frame)
            if self._liberal_left:
                self._liberal_left -= 1
            elif self._verifier is None:  # else record by record: its own bytes are what is signed
                known = len(odd)
                try:
                    records += self._fast(frame, odd)
                except _BAD_INPUT:
                    del odd[known:]
                    self._liberal_run = min(2 * self._liberal_run + 1, _MAX_LIBERAL_RUN)
                    self._liberal_left = self._liberal_run
                else:
                    self._liberal_run = 0
                    continue
            self._liberal(frame, odd, records, unreadable)
        return Delivery(
            records, unreadable, dict(Counter(odd)), size_bytes, self.open, self._all_whole
        )

    def open(self, statements: Sequence[Statement]) -> Opened:
        """Look into the bodies of what `peek` gave. Bad input never raises."""
        odd: list[str] = []
        try:
            records = self._unsealed(statements, odd)
        except _BAD_INPUT:
            return self._open_frames(statements)
        return Opened(records, (), dict(Counter(odd)))

    def _open_frames(self, statements: Sequence[Statement]) -> Opened:
        """Frame by frame: one that holds what cannot be read is read again the liberal way."""
        records: list[Record] = []
        unreadable: list[Unreadable] = []
        odd: list[str] = []
        for frame, members in groupby(statements, lambda one: getattr(one, "frame", b"")):
            group = list(members)
            known = len(odd)
            try:
                records += self._unsealed(group, odd)
            except _BAD_INPUT:
                del odd[known:]
                read: list[Statement] = []
                self._liberal(frame, odd, read, unreadable)
                asked = {(one.key, one.token) for one in group}
                records += [
                    one for one in read if isinstance(one, Record) and (one.key, one.token) in asked
                ]
        return Opened(records, unreadable, dict(Counter(odd)))

    def _unsealed(self, statements: Iterable[Statement], odd: list[str]) -> list[Record]:
        with_uuid, whole = self._with_uuid, self._whole
        return [unsealed(one, odd, with_uuid=with_uuid, whole=whole) for one in statements]

    def _fast(self, frame: bytes, odd: list[str]) -> Sequence[Statement]:
        if not frame.isascii():
            frame.decode()  # bodies stay bytes, and msgspec does not look into their texts
        items = split_exact(frame)
        if items is None:
            return self._usual(frame, odd)
        stream, known_partitions = self._stream, self._partitions
        sealed: list[Statement] = []
        for item in items:
            header = item.log_record_header
            token, key = header.token, header.entity_key
            if "\0" in token or "\0" in key:
                raise BadRecord("the liberal way says which")
            stamp = header.log_append_time_stamp
            if stamp != self._stamp:
                self._read_stamp(stamp)
            first, second = header.full_log_record_offset_id
            partition, offset = first.value, int(second.value)
            if not 0 <= offset <= MAX_OFFSET:
                raise BadRecord("such an offset is counted by the liberal way")
            if partition not in known_partitions:
                self._add_partition(partition)
            sealed.append(
                Sealed(
                    stream,
                    key,
                    EXACT_KINDS[header.record_type],
                    token,
                    self._stamp_us,
                    partition,
                    offset,
                    item.log_record_body,
                    frame,
                )
            )
        return sealed

    def _read_stamp(self, stamp: str) -> None:
        moment = datetime.fromisoformat(stamp)
        if moment.tzinfo is None or len(stamp) > MAX_TIME_CHARS:
            raise BadRecord("an odd time is judged by the liberal way")
        self._stamp, self._stamp_us = stamp, round(moment.timestamp() * 1_000_000)

    def _usual(self, frame: bytes, odd: list[str]) -> list[Record]:
        record = self._record
        records: list[Record] = []
        for item in split_fast(frame):
            header = item.log_record_header
            stamp = header.log_append_time_stamp
            if stamp != self._stamp:
                self._read_stamp(stamp)
            records.append(record(header, self._stamp_us, item.log_record_body, odd))
        return records

    def _liberal(
        self, frame: bytes, odd: list[str], records: list[Statement], unreadable: list[Unreadable]
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
            noticed: list[str] = []
            try:
                records.append(self._one(raw, noticed))
            except NotAuthentic as bad:
                odd.append(bad.deviation)
                reason = str(bad)
            except BadRecord as bad:
                reason = str(bad)
            except RecursionError:
                reason = "JSON nested too deeply"
            except (ValueError, OverflowError) as error:
                reason = f"malformed: {error}"[:_MAX_REASON_CHARS]
            else:
                odd += noticed
                continue
            if len(bad_records) <= MAX_FRAME_UNREADABLE:
                bad_records.append(Unreadable(self._stream, raw, reason, _token_of(raw)))
        if len(bad_records) > MAX_FRAME_UNREADABLE:
            reason = (
                f"more than {MAX_FRAME_UNREADABLE} records of the frame: {bad_records[0].reason}"
            )
            bad_records = [Unreadable(self._stream, frame, reason)]
        unreadable += bad_records

    def _one(self, raw: bytes, odd: list[str]) -> Record:
        raw.decode()
        if self._verifier is not None:
            check_authenticity(raw, self._verifier)
        members = plain_members(raw, odd)
        if "log-record-header" not in members:
            raise BadRecord("no log-record-header: not a log-record (TR-548 3.10)")
        header, appended_at_us = read_header(members["log-record-header"], odd)
        body = decode_body(members.get("log-record-body", NO_BODY))
        return self._record(header, appended_at_us, body, odd)

    def _record(
        self, header: Header, appended_at_us: int, body: Fields | None, odd: list[str]
    ) -> Record:
        token, key = header.token, header.entity_key
        if not 0 < len(token) <= MAX_TEXT_CHARS or "\0" in token:
            check_text("token", token)
        if not 0 < len(key) <= MAX_TEXT_CHARS or "\0" in key:
            check_text("entity-key", key)
        kind, whole, spelling = record_kind(header.record_type)
        if spelling:
            odd += spelling
        partition, offset = place_of(header.full_log_record_offset_id, odd)
        if partition not in self._partitions:
            self._add_partition(partition)
        entity_class, content, envelope, ends = entity_of(kind, body, header.record_type, odd)
        whole = whole and self._whole
        if not whole:
            self._all_whole = False
        uuid = uuid_of(content) if self._with_uuid and content else ""
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


def reader_of(stream: StreamInfo, verifier: Verifier | None = None) -> Reader:
    """A reader as this stream needs it, by its mode and log-record-strategy."""
    by_change = stream.record_strategy == "CHANGE_ONLY"
    with_uuid = stream.mode is Mode.BASELINE or by_change
    return Reader(stream.id, with_uuid=with_uuid, whole=not by_change, verifier=verifier)


def _token_of(raw: bytes) -> str | None:
    """The token of a record that could not be read, if that much of it can."""
    try:
        token = text_of(plain_members(plain_members(raw, [])["log-record-header"], []), "token", [])
        check_text("token", token)
    except (ValueError, KeyError, RecursionError, BadRecord):
        return None
    return token
