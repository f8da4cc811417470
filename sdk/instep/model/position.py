"""The position of a consumer in a log, with the state of its alignment: one immutable value."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from hashlib import blake2b
from typing import Final

import msgspec

from instep.model.holds import EmptyReadings, Hold

__all__ = [
    "RECENT_RECORDS",
    "UNREACHABLE_OFFSET",
    "ContinuityState",
    "Phase",
    "Position",
    "SweepBarrier",
    "UnknownEntity",
    "UnknownState",
    "decode_position",
    "recent_digest",
]

RECENT_RECORDS = 256
"""The number of records within which a redelivery is recognised."""
UNREACHABLE_OFFSET = 1 << 62
"""The offset of a partition whose last record is not known."""
_DIGEST_BYTES = 8


class Phase(StrEnum):
    """How far the alignment has come (the states of `instep.alignment.machine`)."""

    UNALIGNED = "unaligned"
    """No attempt was ever opened."""
    ALIGNING = "aligning"
    """An attempt is open: the log is read from its oldest record, and its records mark entities."""
    BASELINING = "baselining"
    """An attempt is open: current state is read by GET while the stream's records are buffered."""
    SWEEPING = "sweeping"
    """The attempt has marked all that exists; the rest is being removed while records
    are applied.
    """
    SWEEP_HELD = "sweep-held"
    """The sweep would remove more than the guard allows and waits for a decision (A6)."""
    ALIGNED = "aligned"
    """The store is eventually consistent with the provider."""
    CONFIRMING = "confirming"
    """Nothing proves that the stream goes on where it was left: that is being found out (A2).
    Nothing is swept meanwhile.
    """
    LOST = "lost"
    """The stream is read too late for its log, and realigning did not help: ends may be missing
    (A8).
    """
    NOT_OFFERED = "not-offered"
    """The provider does not offer the stream any more: what is stored of it is unproven (A20). No
    state of the machine: its position keeps the phase from which it goes on.
    """


class SweepBarrier(msgspec.Struct, frozen=True):
    """The last record committed before the attempt. The sweep may begin once the stream has passed
    it.
    """

    token: str | None = None
    appended_at_us: int = 0
    offsets: dict[str, int] = {}
    appended_us: dict[str, int] = {}


class ContinuityState(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is remembered of a stream to tell whether it was continued (A2), and of the gaps in its
    offsets (A18).
    """

    probed_at_us: int = 0
    """When the last probe was begun, by the provider's clock."""
    second_connection_refused: bool = False
    """Whether the provider refuses a second connection to the stream, or closes the first one for
    it: then no probe is made.
    """
    gaps: int = 0
    """Gaps found since the last attempt that a gap called for was begun; with one, another is due.
    """
    called_by_gap: bool = False
    """Whether a gap has called for the current attempt."""
    fruitless_gaps: int = 0
    """Attempts in a row that a gap called for, and that found nothing gone."""


class UnknownState(StrEnum):
    """What was done for an entity that a CHANGE named and that is not stored (v3.2, 5.2)."""

    KNOWN = "known"
    """It is stated, or has ended: nothing is kept of it."""
    DUE = "due"
    """A realignment is owed: the stream states the entity, or does not."""
    SOUGHT = "sought"
    """An attempt is open that states it if it exists."""
    ABSENT = "absent"
    """An attempt has not stated it: no further one is made for it."""


class UnknownEntity(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entity that a CHANGE named, and that is not stored."""

    state: UnknownState
    uuid: str = ""
    """As the CHANGE states it: a baseline may know the entity by that alone."""


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """The last record committed, and the state that must survive with it.

    A position is stored in the transaction of the records that it covers, so it is never ahead of
    the data (A1). It is replaced as a whole.
    """

    token: str | None = None
    """Token of the last committed record of the current attempt; None before the first."""
    offsets: dict[str, int] = {}
    """Highest committed offset by partition, of the current attempt."""
    appended_us: dict[str, int] = {}
    """Append time of the last committed record by partition, of the current attempt."""
    appended_at_us: int = 0
    """Newest committed append time of the current attempt; 0 before the first record."""
    ordinal: int = 0
    """Counts the commits of this consumer on this stream. Unlike provider tokens, ordinals can be
    compared.
    """
    records: int = 0
    """Records committed since the beginning."""
    phase: Phase = Phase.UNALIGNED
    attempt: int = 0
    """`current-stream-alignment-attempt-counter` (TR-548 ST-2.1 step 1)."""
    attempt_started_at_us: int = 0
    attempt_records: int = 0
    """Records committed in the current attempt: how far it has come."""
    unreadable: int = 0
    """Records of the current attempt that could not be read (A11)."""
    unaligned_attempts: int = 0
    """Attempts begun since the stream was last aligned, the current one included (A16)."""
    barrier: SweepBarrier = SweepBarrier()
    lineage: int = 0
    """Counts the logs this stream was read from: append times compare only within one lineage
    (A3).
    """
    origin: str = ""
    """Identifies the log being read (endpoint and stream uuid, for example); another origin is
    another lineage.
    """
    watermark_us: int = 0
    """Provider time up to which no record can be missing: the newest append time, or a later time
    when connected and silent.
    """
    recent: bytes = b""
    """Digests of the last committed tokens, oldest first: a small rewind may deliver these again
    (A2).
    """
    sweep_cursor: int = 0
    sweep_removed: int = 0
    """Entities that the sweep of the attempt has removed, as far as the sink counts them (A6). A
    step that was committed just before the process was killed may not be counted.
    """
    unproven: int = 0
    """Entities of which the attempt cannot tell whether they exist as stored, as far as the sink
    counts them (A17).
    """
    baseline_pending: bool = False
    """A tombstone named an entity that only a baseline had shown: the next baseline is due."""
    opened_at_newest: bool = False
    """Whether the attempt began at the newest record, so that its baseline has shown all before it.
    A process that goes on with the attempt must know it (A14).
    """
    continuity: ContinuityState = ContinuityState()
    holds: tuple[Hold, ...] = ()
    """What this attempt could not read (A17)."""
    held_before: tuple[Hold, ...] = ()
    """The same of the attempt before."""
    empty: EmptyReadings = EmptyReadings()
    """Classes that the provider states nothing of, where the store holds something (A19)."""
    unknown: dict[str, UnknownEntity] = {}
    """By entity-key, what a CHANGE named that is not stored."""

    def recently(self, *tokens: str) -> bool:
        """Whether records with these tokens are among the last committed, each right after the one
        before.
        """
        digests = b"".join(map(recent_digest, tokens))
        start = self.recent.find(digests)
        while start >= 0 and start % _DIGEST_BYTES:
            start = self.recent.find(digests, start + 1)
        return start >= 0

    def remember(self, tokens: Sequence[str], most: int = RECENT_RECORDS) -> bytes:
        """`recent` after these tokens were committed; bounded to the newest `most`.

        Without offsets in the log, a repeated token removes the tokens after it: a provider that
        was reset sends those records anew, and they must not count as redelivered.
        """
        newest = [recent_digest(token) for token in tokens[-most:]]
        recent = self.recent + b"".join(newest)
        if not self.offsets:
            places = range(0, len(recent), _DIGEST_BYTES)
            recent = b"".join(_in_line([recent[at : at + _DIGEST_BYTES] for at in places]))
        return recent[-most * _DIGEST_BYTES :]


decode_position: Final = msgspec.json.Decoder(Position).decode
"""A position from its JSON. Raises `msgspec.DecodeError` where it is none."""


def _in_line(digests: list[bytes]) -> list[bytes]:
    """The digests without those between two copies of one digest."""
    if len(set(digests)) == len(digests):
        return digests
    line: dict[bytes, None] = {}
    for digest in digests:
        if digest in line:
            while next(reversed(line)) != digest:
                line.popitem()
        else:
            line[digest] = None
    return list(line)


def recent_digest(token: str) -> bytes:
    """Eight stable bytes for a token: the same in every process, unlike `hash`."""
    return blake2b(token.encode(), digest_size=_DIGEST_BYTES).digest()
