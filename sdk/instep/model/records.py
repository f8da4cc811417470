"""The data between a source and a sink: records, headers and chunks of records.

Times are integers in microseconds since 1970-01-01 UTC (`_us`): they compare, add and store without
conversion. Structs are built once per record on the hot path, hence `gc=False` and positional
order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from hashlib import blake2b
from typing import Final, cast

import msgspec
from msgspec.structs import force_setattr

__all__ = ["DecodedRecords", "Record", "RecordChunk", "RecordHeader", "RecordType", "Unreadable"]


class RecordType(IntEnum):
    """What a record states of its entity (TR-548 3.10 `record-type`)."""

    CREATE_UPDATE = 1
    DELETE = 2
    TOMBSTONE = 3
    CHANGE = 4
    """What has changed, and no more; a list in it is entire (TR-548 5.2 of v3.2)."""

    @property
    def ends_entity(self) -> bool:
        """Whether each record of this type ends its entity (A4). Others may end it, too."""
        return self is RecordType.DELETE or self is RecordType.TOMBSTONE


_DIGEST_BYTES: Final = 16
_CREATE_UPDATE: Final = RecordType.CREATE_UPDATE
_CHANGE: Final = RecordType.CHANGE
_BY_KIND: Final = cast("bool", None)
"""For `Record.ends`, until the record is made."""


class RecordHeader(msgspec.Struct, frozen=True, gc=False):
    """The header of a record about one entity, without its body (TR-548 3.10).

    All that alignment decides by; a feed may give a subclass of its own that `RecordChunk.open`
    opens.
    """

    stream: str
    """The stream's id in the store."""
    key: str
    """The entity-key: opaque, unique in the stream, the same for every record of one entity."""
    kind: RecordType
    token: str
    """Where to resume after this record; opaque. Empty for a row of a baseline, which has no place
    in the log.
    """
    appended_at_us: int
    """`log-append-time-stamp`; for a baseline row the time its baseline was opened."""
    partition: str = ""
    offset: int = -1
    """Place within the partition, growing, gaps allowed; -1 where the provider states none."""


class Record(RecordHeader, frozen=True, gc=False):
    """One record about one entity, as the provider appended it to its log (TR-548 3.10).

    `body` and `envelope` are undecoded JSON: only who needs them pays for the parse.

    Raises `ValueError` for a record that contradicts itself: a DELETE or a TOMBSTONE that does not
    end its entity, or a kind that is no `RecordType`.
    """

    entity_class: str = ""
    """`record-content`, without prefix: NODE, LINK …; empty where the record has
    none.
    """
    body: bytes = b""
    """The entity itself: the content of the class container, as stated. Empty for header-only
    records.
    """
    envelope: bytes = b""
    """The rest of the log-record-body (event time, parent address, unknown members) as one JSON
    object.
    """
    ends: bool = _BY_KIND
    """Whether the record ends the entity (A4). Left out it follows from the kind: DELETE and
    TOMBSTONE end it. Another may end it, too, and then says so: an alarm that is CLEAR (ST-3.2).
    """
    uuid: str = ""
    """The entity's own uuid, or the place of an entity that has none; read only where rows must
    meet a baseline (the entity-key may differ from it). A SQL store fills it in elsewhere.
    """
    whole: bool = True
    """False for what is merged into what is stored: a CHANGE, and each record of a CHANGE_ONLY
    stream of v1.1 that does not say it is whole (TR-548 3.8.2.2).
    """

    # It runs for each record; a local name is found faster.
    def __post_init__(self, _update: RecordType = _CREATE_UPDATE) -> None:
        # A DELETE and a TOMBSTONE end their entity, together or alone (A4).
        if self.kind is _update:
            if self.ends is _BY_KIND:
                force_setattr(self, "ends", False)
        elif self.kind is _CHANGE:
            force_setattr(self, "whole", False)
            if self.ends is _BY_KIND:
                force_setattr(self, "ends", False)
        elif self.ends is not True:
            _end(self)


def _end(record: Record) -> None:
    """Let a DELETE or a TOMBSTONE end its entity."""
    if not isinstance(record.kind, RecordType):
        raise ValueError(f"the kind of a record is a RecordType, not {record.kind!r}")  # noqa: TRY004
    if record.ends is not _BY_KIND:
        raise ValueError(
            f"a {record.kind.name} of {record.key!r} with ends={record.ends!r} contradicts itself:"
            " it ends its entity; leave `ends` out, or state a CREATE_UPDATE"
        )
    force_setattr(record, "ends", True)


class Unreadable(msgspec.Struct, frozen=True, gc=False):
    """A record, a frame or an element of a baseline that could not be read: kept with its bytes,
    never dropped (A11). What its bytes still say of it bounds what it can be about (A17).
    """

    stream: str
    raw: bytes
    reason: str
    token: str | None = None
    key: str | None = None
    """The entity-key; None where not even that can be read."""
    partition: str | None = None
    """None: it may be of any partition."""
    offset: int = -1
    entity_class: str = ""
    """Empty: it may be of any class."""

    @property
    def digest(self) -> str:
        """Identifies its bytes, in hexadecimal."""
        return blake2b(self.raw, digest_size=_DIGEST_BYTES).hexdigest()


class DecodedRecords(msgspec.Struct, frozen=True, gc=False):
    """Decoded records, and the records that could not be read."""

    records: Sequence[Record]
    unreadable: Sequence[Unreadable] = ()
    deviations: dict[str, int] = {}
    """Departures from the specification in the bodies: kind → count (A10)."""
    samples: dict[str, bytes] = {}
    """See `RecordChunk.samples`."""


class RecordChunk(msgspec.Struct, frozen=True, gc=False):
    """The records of one `Feed.receive`, in order."""

    records: Sequence[RecordHeader]
    """The headers that `decoder` decodes; if it is None, each is a `Record`."""
    unreadable: Sequence[Unreadable] = ()
    deviations: dict[str, int] = {}
    """Departures from the specification seen in these frames: kind → count (A10)."""
    size_bytes: int = 0
    """Bytes of its bodies, for the bound in bytes of what is read ahead; 0 counts for nothing."""
    decoder: Callable[[Sequence[RecordHeader]], DecodedRecords] | None = None
    """Decodes any of `records`, in order. Pure; bad input never raises."""
    whole: bool = True
    """False if a record may be a partial update: then no record replaces the one before it."""
    realign: str = ""
    """Why the stream must be realigned, if the feed detected it (a lost message, for example);
    empty otherwise. The records are committed first, then the stream is opened again from its
    start. This is not an error, and the connection is not lost.
    """
    samples: dict[str, bytes] = {}
    """Of deviations that are texts without a record: kind → the beginning of one of them."""

    def decode(self, records: Sequence[RecordHeader] | None = None) -> DecodedRecords:
        """Decode these of the records (None: all of them)."""
        chosen = self.records if records is None else records
        if self.decoder is None:
            return DecodedRecords(cast("Sequence[Record]", chosen))
        return self.decoder(chosen)

    def decoded(self) -> RecordChunk:
        """The chunk with all of its records decoded."""
        if self.decoder is None:
            return self
        found = self.decoder(self.records)
        deviations = dict(self.deviations)
        for kind, times in found.deviations.items():
            deviations[kind] = deviations.get(kind, 0) + times
        return RecordChunk(
            found.records,
            [*self.unreadable, *found.unreadable],
            deviations,
            self.size_bytes,
            whole=self.whole,
            realign=self.realign,
            samples=self.samples,
        )
