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
    utf8,
)
from instep_tapi.headers import (
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
from instep_tapi.sealed import (
    SealedStretch,
    decode_body,
    entity_of,
    sealed_stretch,
    unsealed,
    uuid_of,
)
from instep_tapi.times import MAX_TIME_CHARS

__all__ = ["Reader", "reader_of"]

MAX_PARTITIONS = 1_024
"""Partitions of one stream: the position states an offset for each."""
MAX_FRAME_RECORDS = 20_000
"""Records of one frame that are looked at one by one."""
MAX_FRAME_UNREADABLE = 100
"""Records of one frame that are kept one by one; of more, the frame is kept as a whole."""
_MAX_PASSED_OVER = 255
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
        self._stamp, self._stamp_us = "", 0
        self._partitions = {""}
        self._all_whole = whole
        # Where of late few bodies were asked for, they are not even parsed beforehand.
        self._peeked_records = self._asked_records = 0
        # A stream whose frames never have a usual shape is seldom tried for one.
        self._inexact = _Trial()
        self._liberal_only = _Trial()

    def read(self, frames: Sequence[bytes]) -> Delivery:
        """Records, unreadables and deviations of these frames, in order. Bad input never raises."""
        return self.peek(frames).unsealed()

    def peek(self, frames: Sequence[bytes]) -> Delivery:
        """The same, with bodies still to be opened where the frames have the usual spelling."""
        size_bytes = sum(map(len, frames))
        if self._inexact.tries() and self._verifier is None:
            stretch = self._stretch(frames)
            self._inexact.tried(worked=stretch is not None)
            if stretch is not None:
                return Delivery(stretch, (), {}, size_bytes, self.open, self._all_whole)
        records: list[Record] = []
        unreadable: list[Unreadable] = []
        odd: list[str] = []
        for frame in frames:
            # With a verifier record by record: its own bytes are what is signed.
            if self._verifier is None and self._liberal_only.tries():
                known = len(odd)
                try:
                    records += self._fast(frame, odd)
                except _BAD_INPUT:
                    del odd[known:]
                    self._liberal_only.tried(worked=False)
                else:
                    self._liberal_only.tried(worked=True)
                    continue
            self._liberal(frame, odd, records, unreadable)
        return Delivery(records, unreadable, dict(Counter(odd)), size_bytes, whole=self._all_whole)

    def open(self, statements: Sequence[Statement]) -> Opened:
        """Look into the bodies of what `peek` gave. Bad input never raises."""
        self._asked_records = len(statements)
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
                read: list[Record] = []
                self._liberal(frame, odd, read, unreadable)
                asked = {(one.key, one.token) for one in group}
                records += [one for one in read if (one.key, one.token) in asked]
        return Opened(records, unreadable, dict(Counter(odd)))

    def _unsealed(self, statements: Iterable[Statement], odd: list[str]) -> Sequence[Record]:
        with_uuid, whole = self._with_uuid, self._whole
        if isinstance(statements, SealedStretch):
            return statements.opened(odd, with_uuid=with_uuid, whole=whole)
        return [unsealed(one, odd, with_uuid=with_uuid, whole=whole) for one in statements]

    def _stretch(self, frames: Sequence[bytes]) -> SealedStretch | None:
        few = 2 * self._asked_records < self._peeked_records
        exact = split_exact(frames, with_bodies=not few)
        if exact is None or not exact.headers:
            return None
        self._peeked_records = len(exact.headers)
        try:
            stretch = sealed_stretch(self._stream, exact, self._times_us)
            if stretch is not None and stretch.partition not in self._partitions:
                self._add_partition(stretch.partition)
        except _BAD_INPUT:
            return None
        return stretch

    def _times_us(self, stamps: Sequence[str]) -> list[int]:
        """Under load many records were appended in one millisecond: a time is read once."""
        times_us = {stamp: _time_us(stamp) for stamp in set(stamps)}
        return list(map(times_us.__getitem__, stamps))

    def _fast(self, frame: bytes, odd: list[str]) -> list[Record]:
        record = self._record
        records: list[Record] = []
        for item in split_fast(utf8(frame)):
            header = item.log_record_header
            stamp = header.log_append_time_stamp
            if stamp != self._stamp:
                self._stamp, self._stamp_us = stamp, _time_us(stamp)
            records.append(record(header, self._stamp_us, item.log_record_body, odd))
        return records

    def _liberal(
        self, frame: bytes, odd: list[str], records: list[Record], unreadable: list[Unreadable]
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


class _Trial:
    """A short cut that is tried less and less often while it does not work."""

    def __init__(self) -> None:
        self._passed_over = self._left = 0

    def tries(self) -> bool:
        if self._left:
            self._left -= 1
            return False
        return True

    def tried(self, *, worked: bool) -> None:
        self._passed_over = 0 if worked else min(2 * self._passed_over + 1, _MAX_PASSED_OVER)
        self._left = self._passed_over


def _time_us(stamp: str) -> int:
    moment = datetime.fromisoformat(stamp)
    if moment.tzinfo is None or len(stamp) > MAX_TIME_CHARS:
        raise BadRecord("an odd time is judged by the liberal way")
    return round(moment.timestamp() * 1_000_000)


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
