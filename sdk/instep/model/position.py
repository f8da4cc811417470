"""Where a consumer stands in a log, and how far its alignment has come: one value that moves
whole.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b

import msgspec

__all__ = [
    "RECENT_RECORDS",
    "UNREACHABLE_OFFSET",
    "Phase",
    "Position",
    "SweepBarrier",
    "recent_digest",
]

RECENT_RECORDS = 256
"""How far back a redelivery may reach and still be known for one."""
UNREACHABLE_OFFSET = 1 << 62
"""Stands for the offset of a partition whose last record is not known."""
_DIGEST_BYTES = 8


class Phase(StrEnum):
    """How far the alignment has come (the states of `instep.alignment.machine`)."""

    UNALIGNED = "unaligned"
    """No attempt was ever opened."""
    ALIGNING = "aligning"
    """An attempt is open: the log is read from its oldest record, what it states is marked."""
    BASELINING = "baselining"
    """An attempt is open: current state is read by GET while the stream is held."""
    SWEEPING = "sweeping"
    """The attempt has proved what exists; the rest is being removed while new records go on."""
    SWEEP_HELD = "sweep-held"
    """The sweep would remove more than the guard allows and waits for a decision (A6)."""
    ALIGNED = "aligned"
    """Eventually consistent with the provider."""


class SweepBarrier(msgspec.Struct, frozen=True):
    """The last record committed before the attempt: the sweep is not due before the stream has
    passed it.
    """

    token: str | None = None
    appended_at_us: int = 0
    offsets: dict[str, int] = {}
    appended_us: dict[str, int] = {}


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """The last record committed, and the state that must survive with it.

    A position is stored in the transaction that stores what it covers, so it is never ahead of the
    data (A1). It is replaced whole, never edited in parts. Three fields are stored under the names
    that stores of version 0.1 know.
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
    """Counts commits of this consumer on this stream; provider tokens cannot be compared, this
    can.
    """
    records: int = 0
    """Records committed since the beginning."""
    phase: Phase = Phase.UNALIGNED
    attempt: int = 0
    """`current-stream-alignment-attempt-counter` (TR-548 ST-2.1 step 1)."""
    attempt_started_at_us: int = 0
    barrier: SweepBarrier = msgspec.field(default=SweepBarrier(), name="reference")
    lineage: int = 0
    """Counts the logs this stream was read from: append times compare only within one lineage
    (A3).
    """
    origin: str = ""
    """What identifies the log being read (endpoint and stream uuid, say); another origin is
    another lineage.
    """
    watermark_us: int = msgspec.field(default=0, name="known_to_us")
    """Provider time up to which nothing can be missing: newest append time, or later when
    connected and silent.
    """
    recent: bytes = b""
    """Digests of the last committed tokens, oldest first: what a small rewind may bring again
    (A2).
    """
    sweep_cursor: int = 0
    baseline_pending: bool = msgspec.field(default=False, name="owes_baseline")
    """A tombstone named an entity that only a baseline had shown: the next baseline is due."""

    def recently(self, token: str) -> bool:
        """Whether the record with this token is among the last committed."""
        digest = recent_digest(token)
        start = self.recent.find(digest)
        while start >= 0 and start % _DIGEST_BYTES:
            start = self.recent.find(digest, start + 1)
        return start >= 0

    def remember(self, tokens: list[str]) -> bytes:
        """`recent` after these tokens were committed; bounded to the newest `RECENT_RECORDS`.

        Where the log states no offsets, a token that comes again takes back what came after it: a
        provider that has gone back states that anew, and it must not be taken for known.
        """
        newest = [recent_digest(token) for token in tokens[-RECENT_RECORDS:]]
        recent = self.recent + b"".join(newest)
        if not self.offsets:
            places = range(0, len(recent), _DIGEST_BYTES)
            recent = b"".join(_in_line([recent[at : at + _DIGEST_BYTES] for at in places]))
        return recent[-RECENT_RECORDS * _DIGEST_BYTES :]


def _in_line(digests: list[bytes]) -> list[bytes]:
    """The digests without those that lie between two copies of one."""
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
