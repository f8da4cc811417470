"""Reads frames into records: by a template where a frame has the shape of one before, else plainly.

Both ways give the same. The plain way (`FrameDecoder._decode_plainly`) takes every spelling of the
field, and reads record by record, so that one bad record does not take its neighbours with it. A
template (`frame_template`) reads all frames at once. It is learned from a frame, and declines what
it does not know.

A body that a template has passed stays undecoded until it is needed (`FrameDecoder.decode_bodies`):
in a storm over few entities, only the bodies that count in the end are decoded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Final, cast

import msgspec

from instep.model.columns import CompactedAway, concatenated
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
from instep_tapi.facts.names import ANY_CLASS, MAX_NAME_CHARS
from instep_tapi.facts.stream_profile import TAPI_2_1_3
from instep_tapi.wire.authenticity import NotAuthentic, check_authenticity
from instep_tapi.wire.frame_shape import shape_of
from instep_tapi.wire.frame_template import FrameTemplate
from instep_tapi.wire.framing import NO_BODY, BadRecord, split_liberal
from instep_tapi.wire.header_scan import is_record, read_leniently
from instep_tapi.wire.lazy_columns import LazyColumns, LazyRecord, open_records
from instep_tapi.wire.partial_update_detector import PartialUpdateDetector, shows_2_4
from instep_tapi.wire.record_body import decode_body, entity_of, open_body, uuid_of, with_header
from instep_tapi.wire.record_header import (
    DEFAULT_TYPE,
    PLACE_ENTRIES,
    check_text,
    partition_and_offset,
    plain_members,
    read_header,
    read_record_type,
)
from instep_tapi.wire.subtree_filter import is_below

__all__ = ["FrameDecoder", "decoder_for"]

MAX_PARTITIONS = 1_024
"""Partitions of one stream: the position states an offset for each."""
MAX_FRAME_RECORDS = 20_000
"""Most records of one frame that are read one by one."""
MAX_FRAME_UNREADABLE = 100
"""Most unreadable records of one frame that are kept one by one; with more, the frame is kept as a
whole.
"""
_MAX_TEMPLATES = 4
_MAX_LESSONS = 64
"""So many frames may be learned at once, and one more for each …"""
_FRAMES_A_LESSON = 256
"""… frames that have come: a template costs as much as some hundred records."""
_MAX_REASON_CHARS = 500
_SAMPLE_BYTES = 512


_encode = msgspec.json.Encoder().encode
_BAD_INPUT: Final = (ValueError, OverflowError, RecursionError, BadRecord)


class _Reading(msgspec.Struct):
    """What was read of some frames."""

    parts: list[Sequence[RecordHeader]] = []
    unreadable: list[Unreadable] = []
    deviations: list[str] = []
    samples: dict[str, bytes] = {}
    unopened: bool = False
    """Whether some of the bodies are not opened yet."""


class FrameDecoder:
    """Reads the frames of one stream (TR-548 3.10, 5.10).

    Args:
        stream: The stream's id, put into each record.
        with_uuid: Read the entity's own uuid too, for streams whose rows meet a baseline.
        whole: False where a CREATE_UPDATE is a part of its entity (3.8.2.2).
        verifier: Checks each record's authenticity token; only what passes is read.
        stated: Deviations of what was declared of the stream, told with the first frames.
        only: The classes that are kept (3.12), and ends that state no class; empty: all.
        below: The entities, by uuid, whose subtrees are kept (3.12); empty: all.
        suspects_parts: Tell where a CREATE_UPDATE, which is whole, looks like a part (v3.2 5.2).
        needs_type: False where a record without record-type and entity is information (v3.2 3.10).
    """

    def __init__(  # noqa: PLR0913 - what differs from stream to stream
        self,
        stream: str,
        *,
        with_uuid: bool = False,
        whole: bool = True,
        verifier: Verifier | None = None,
        stated: Sequence[str] = (),
        only: Collection[str] = (),
        below: Collection[str] = (),
        suspects_parts: bool = False,
        needs_type: bool = True,
    ) -> None:
        self._stream = stream
        self._stated = stated
        self._parts: PartialUpdateDetector | None = (
            PartialUpdateDetector() if suspects_parts else None
        )
        self._only = frozenset(only)
        self._below = frozenset(below)
        self._with_uuid = with_uuid
        self._whole = whole
        self._verifier = verifier
        self._needs_type = needs_type
        self._all_whole = whole
        self._partitions = {""}
        # Where few bodies were needed recently, they are not even parsed beforehand.
        self._scanned_records = self._opened_records = 0
        self._templates: list[FrameTemplate] = []
        """The one that read the last frames comes first."""
        self._lessons: float = _MAX_LESSONS

    @property
    def leaves_bodies(self) -> bool:
        """Whether few bodies were needed recently, as in a storm: then most stay undecoded."""
        return 2 * self._opened_records < self._scanned_records

    def read(self, frames: Sequence[bytes]) -> RecordChunk:
        """Records, in order, unreadables and deviations of these frames. Bad input never raises."""
        return self.scan(frames).decoded()

    def scan(self, frames: Sequence[bytes], size_bytes: int | None = None) -> RecordChunk:
        """The same, with bodies still to be opened where the frames have the usual spelling. Of a
        record that is not kept, the header is left. `size_bytes`: of all frames, where it is known.
        """
        chunk = self._scanned(frames, sum(map(len, frames)) if size_bytes is None else size_bytes)
        if self._parts is not None:
            if any(shows_2_4(frame) for frame in frames):
                self._parts = None
            else:
                chunk = self._parts.inspect(chunk.decoded())
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
            or (record.kind.ends_entity and record.entity_class in classless)
        )
        return of_class and (not self._below or is_below(record, self._below))

    def _scanned(self, frames: Sequence[bytes], size_bytes: int) -> RecordChunk:
        found = _Reading(deviations=list(self._stated))
        self._stated = ()
        # With a verifier record by record: its own bytes are what is signed.
        if frames and self._verifier is None:
            self._lessons = min(_MAX_LESSONS, self._lessons + len(frames) / _FRAMES_A_LESSON)
            self._read(frames, found)
        else:
            for frame in frames:
                self._decode_plainly(frame, found)
        parts = found.parts
        records = concatenated(parts) if len(parts) > 1 else parts[0] if parts else []
        decoder = None
        if found.unopened:
            decoder = self.decode_bodies
            self._scanned_records = len(records)
        return RecordChunk(
            records,
            found.unreadable,
            dict(Counter(found.deviations)) if found.deviations else {},
            size_bytes,
            decoder,
            whole=self._all_whole,
            samples=found.samples,
        )

    def decode_bodies(self, statements: Sequence[RecordHeader]) -> DecodedRecords:
        """Decode the bodies of records that `scan` returned. Bad input never raises."""
        self._opened_records = len(statements)
        deviations: list[str] = []
        try:
            records = self._opened(statements, deviations)
        except _BAD_INPUT:
            return self._decode_bodies_by_frame(statements)
        return DecodedRecords(records, (), dict(Counter(deviations)))

    def _decode_bodies_by_frame(self, statements: Sequence[RecordHeader]) -> DecodedRecords:
        """Decode frame by frame; a frame that cannot be read is read again the plain way."""
        records: list[Record] = []
        found = _Reading()
        for frame, members in groupby(statements, lambda one: getattr(one, "frame", b"")):
            group, known = list(members), len(found.deviations)
            try:
                records += self._opened(group, found.deviations)
            except _BAD_INPUT:
                del found.deviations[known:]
                # The body may have a class that no template knows: the next ones are known.
                self._learn(frame)
                asked = {(one.key, one.token) for one in group}
                self._decode_plainly(frame, found)
                again = found.parts.pop()
                records += [
                    one
                    for one in again
                    if isinstance(one, Record) and (one.key, one.token) in asked
                ]
        return DecodedRecords(records, found.unreadable, dict(Counter(found.deviations)))

    def _opened(
        self, statements: Sequence[RecordHeader], deviations: list[str]
    ) -> Sequence[Record]:
        """These records with their bodies. Raises what bad input raises."""
        if isinstance(statements, LazyColumns):
            return statements.opened(deviations, with_uuid=self._with_uuid, whole=self._whole)
        lazy = [one for one in statements if isinstance(one, LazyRecord)]
        if not lazy:
            return cast("Sequence[Record]", statements)
        opened = iter(open_records(lazy, deviations, with_uuid=self._with_uuid, whole=self._whole))
        return [
            next(opened) if isinstance(one, LazyRecord) else cast("Record", one)
            for one in statements
        ]

    # -- by templates ------------------------------------------------------------------------------

    def _read(self, frames: Sequence[bytes], found: _Reading) -> None:
        """Read by templates what they know, and the rest plainly."""
        if not self._templates:
            self._learn(frames[0])
        part = self._read_by_template(frames)
        if part is None and len(frames) > 1:
            half = len(frames) // 2
            self._read(frames[:half], found)
            self._read(frames[half:], found)
            return
        if part is None and self._learn(frames[0]):
            part = self._read_by_template(frames)
        if part is None:
            self._decode_plainly(frames[0], found)
        else:
            found.parts.append(part)
            found.unopened = True

    def _read_by_template(self, frames: Sequence[bytes]) -> Sequence[LazyRecord] | None:
        """All records of these frames; None where no template reads them all."""
        with_bodies = not self.leaves_bodies
        for at, template in enumerate(self._templates):
            try:
                part = template.read(self._stream, frames, with_bodies=with_bodies)
                for partition in _partitions_of(part):
                    self._add_partition(partition)
            except _BAD_INPUT:
                continue
            if at:
                self._templates.insert(0, self._templates.pop(at))
            return part
        return None

    def _learn(self, frame: bytes) -> bool:
        """Learn the shape of a frame. Returns whether that is new, and a template reads it now."""
        if self._lessons < 1:
            return False
        self._lessons -= 1
        with suppress(*_BAD_INPUT):
            shape, known = shape_of(frame), None
            for template in self._templates:
                with suppress(ValueError):
                    shape, known = template.shape.joined(shape), template
                    break
            if known is None or known.shape != shape:
                learned = FrameTemplate(shape)
                if self._reads_rightly(learned, frame):
                    kept = [one for one in self._templates if one is not known]
                    self._templates = [learned, *kept][:_MAX_TEMPLATES]
                    return True
        return False

    def _reads_rightly(self, template: FrameTemplate, frame: bytes) -> bool:
        """Whether a template gives of a frame what the plain way gives."""
        lazy = template.read(self._stream, [frame], with_bodies=True)
        deviations: list[str] = []
        records = list(self._opened(lazy, deviations))
        plain = _Reading()
        self._decode_plainly(frame, plain)
        return (
            [records] == plain.parts
            and not plain.unreadable
            and Counter(deviations) == Counter(plain.deviations)
        )

    # -- plainly -----------------------------------------------------------------------------------

    def _decode_plainly(self, frame: bytes, found: _Reading) -> None:
        """Read record by record, in any spelling. Adds one part."""
        records: list[RecordHeader] = []
        bad_records: list[Unreadable] = []
        found.parts.append(records)
        try:
            items = split_liberal(frame, found.deviations)
        except BadRecord as bad:
            self._keep(frame, str(bad), found.unreadable, found)
            return
        if len(items) > MAX_FRAME_RECORDS:
            reason = f"{len(items):,} records in one frame; at most {MAX_FRAME_RECORDS:,} are taken"
            self._keep(frame, reason, found.unreadable, found)
            return
        for item in items:
            raw = bytes(item)
            deviations: list[str] = []
            try:
                records.append(self._decode_one(raw, deviations, top=isinstance(item, bytes)))
            except NotAuthentic as bad:
                found.deviations.append(bad.deviation)
                reason = str(bad)
            except BadRecord as bad:
                reason = str(bad)
            except RecursionError:
                reason = "JSON nested too deeply"
            except (ValueError, OverflowError) as error:
                reason = f"malformed: {error}"[:_MAX_REASON_CHARS]
            else:
                found.deviations += deviations
                continue
            if len(bad_records) <= MAX_FRAME_UNREADABLE:
                self._keep(raw, reason, bad_records, found)
        if len(bad_records) > MAX_FRAME_UNREADABLE:
            reason = (
                f"more than {MAX_FRAME_UNREADABLE} records of the frame: {bad_records[0].reason}"
            )
            bad_records = [Unreadable(self._stream, frame, reason)]
        found.unreadable += bad_records

    def _keep(self, raw: bytes, reason: str, unreadable: list[Unreadable], found: _Reading) -> None:
        """Keep what cannot be read (A11). A text that names no record is none: it is counted, and
        the first of them is the sample (A17).
        """
        if is_record(raw):
            unreadable.append(read_leniently(self._stream, raw, reason))
        else:
            found.deviations.append("no-record")
            found.samples.setdefault("no-record", raw[:_SAMPLE_BYTES])

    def _decode_one(self, raw: bytes, deviations: list[str], *, top: bool) -> RecordHeader:
        """A record; of an information record the header alone, as a place in the log.

        `top`: whether the record is a whole document, and not in a list or a wrapper.
        """
        raw.decode()
        if self._verifier is not None:
            check_authenticity(raw, self._verifier)
        members = plain_members(raw, deviations, top=top)
        if "log-record-header" not in members:
            raise BadRecord("no log-record-header: not a log-record (TR-548 3.10)")
        header, appended_at_us, rest = read_header(
            members["log-record-header"], deviations, needs_type=self._needs_type
        )
        check_text("token", header.token)
        check_text("entity-key", header.entity_key)
        record_type = header.record_type or DEFAULT_TYPE
        kind, whole, spelling = read_record_type(record_type)
        deviations += spelling
        place = header.full_log_record_offset_id
        partition, offset = partition_and_offset(place, deviations)
        self._add_partition(partition)
        body = members.get("log-record-body", NO_BODY)
        if kind is None:
            if not header.record_type and _states_entity(body):
                raise BadRecord("no record-type beside an entity (mandatory, TR-548 3.10)")
            return CompactedAway(
                self._stream,
                header.entity_key,
                RecordType.CREATE_UPDATE,
                header.token,
                appended_at_us,
                partition,
                offset,
            )
        entity_class, content, envelope, ends = entity_of(
            kind,
            decode_body(body),
            record_type,
            deviations,
        )
        if len(place) > PLACE_ENTRIES:
            rest["full-log-record-offset-id"] = msgspec.Raw(_encode(place))
        if rest:
            envelope = with_header(envelope, rest)
        if whole is None:
            whole = self._whole
        if not whole:
            self._all_whole = False
        return Record(
            self._stream,
            header.entity_key,
            kind,
            header.token,
            appended_at_us,
            partition,
            offset,
            entity_class,
            content,
            envelope,
            ends,
            uuid_of(content, envelope) if self._with_uuid and content else "",
            whole,
        )

    def _add_partition(self, partition: str) -> None:
        if partition in self._partitions:
            return
        if len(partition) > MAX_NAME_CHARS or "\0" in partition:
            raise BadRecord(f"{partition[:64]!r} with {len(partition)} characters is no partition")
        if len(self._partitions) > MAX_PARTITIONS:
            raise BadRecord(f"more than {MAX_PARTITIONS:,} partitions")
        self._partitions.add(partition)


def decoder_for(
    stream: StreamInfo, verifier: Verifier | None = None, stated: Sequence[str] = ()
) -> FrameDecoder:
    """A reader as this stream needs it, by its mode and whether it states changes alone."""
    by_change = stream.partial_updates
    with_uuid = stream.mode is Mode.BASELINE or by_change
    of_2_1_3 = stream.details.get("tapi", TAPI_2_1_3) == TAPI_2_1_3
    states_parts = by_change and of_2_1_3
    return FrameDecoder(
        stream.id,
        with_uuid=with_uuid,
        whole=not states_parts,
        verifier=verifier,
        stated=stated,
        only=stream.details.get("only", ()),
        below=stream.details.get("below", ()),
        suspects_parts=by_change and not states_parts,
        needs_type=of_2_1_3,
    )


def _states_entity(raw: msgspec.Raw) -> bool:
    body = decode_body(raw)
    return bool(body and open_body(body, [])[1])


def _partitions_of(records: Sequence[LazyRecord]) -> Collection[str]:
    if isinstance(records, LazyColumns):
        return (records.partition,)
    return {record.partition for record in records}


def _header(record: RecordHeader) -> CompactedAway:
    return CompactedAway(*(getattr(record, name) for name in RecordHeader.__struct_fields__))
