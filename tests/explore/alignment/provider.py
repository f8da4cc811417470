"""A provider of one stream in the small, written from TR-548 alone.

It is one immutable value; each method returns the next one. Times are whole seconds. It imports
nothing of what it judges.

- 3.8.1.1: of a compacted log a record leaves it once a newer record of its entity is older than the
  compaction delay; a tombstone once it is older than the tombstone retention.
- 3.8.1.2: a truncated log loses its oldest records, whatever they state.
- 3.10, 5.8: a stream is opened after a token; one that the log does not reach back to, or that is
  older than the tombstone retention, opens it at the oldest record.
- ST-1.3: a log may be lost. Another one, with other tokens, states all that exists.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Entry", "Log", "Provider"]


class Log(NamedTuple):
    """How a provider keeps its log."""

    compacted: bool = True
    offsets: bool = True
    """Whether its records state their offsets."""
    partitions: int = 1
    compaction_delay_s: int = 2
    tombstone_retention_s: int = 4
    tombstone_after_delete: bool = False
    """Whether a DELETE is followed by a TOMBSTONE of its own."""
    rebuilds_at_once: bool = False
    """Whether what a rebuilt log states is no later than the end of the one that was lost: so it is
    where a clock went back meanwhile.
    """
    tokens_by_place: bool = False
    """Whether the records of a log that was rebuilt have the tokens that stood at their places."""


class Entry(NamedTuple):
    """One record of the log."""

    place: int
    """Its place in the log, over all partitions."""
    partition: int
    offset: int
    at_s: int
    key: str
    version: int
    """Of what is stated of the entity; each statement has another."""
    ends: bool
    log: int
    """The log that it belongs to: each one that was rebuilt has another number."""


class Provider(NamedTuple):
    """Its log, and what exists."""

    kept: Log
    log: tuple[Entry, ...] = ()
    live: tuple[tuple[str, int], ...] = ()
    """Each entity that exists, with its version."""
    logs: int = 0
    """The number of the present log."""
    next_place: int = 0
    next_offsets: tuple[int, ...] = (0, 0)
    next_version: int = 1

    # -- what happens in the network -------------------------------------------------------------

    def state(self, key: str, now_s: int) -> Provider:
        """An entity is made, or changes."""
        version = self.next_version
        live = {**dict(self.live), key: version}
        known = self._replace(live=tuple(sorted(live.items())), next_version=version + 1)
        return known._append(key, now_s, version, ends=False)

    def end(self, key: str, now_s: int) -> Provider:
        """An entity ends."""
        version = self.next_version
        live = tuple(one for one in self.live if one[0] != key)
        ended = self._replace(live=live, next_version=version + 1)
        ended = ended._append(key, now_s, version, ends=True)
        if self.kept.tombstone_after_delete:
            ended = ended._append(key, now_s, version, ends=True)
        return ended

    def _append(self, key: str, now_s: int, version: int, *, ends: bool) -> Provider:
        partition = ord(key) % self.kept.partitions
        offsets = list(self.next_offsets)
        entry = Entry(
            self.next_place, partition, offsets[partition], now_s, key, version, ends, self.logs
        )
        offsets[partition] += 1
        return self._replace(
            log=(*self.log, entry), next_place=self.next_place + 1, next_offsets=tuple(offsets)
        )

    # -- what happens to the log -----------------------------------------------------------------

    def compact(self, now_s: int) -> Provider:
        """What newer records have superseded leaves a compacted log, as soon as it may."""
        if not self.kept.compacted:
            return self
        return self._replace(
            log=tuple(
                entry
                for entry in self.log
                if not any(
                    newer.key == entry.key
                    and newer.place > entry.place
                    and now_s - newer.at_s > self.kept.compaction_delay_s
                    for newer in self.log
                )
            )
        )

    def forget(self, now_s: int) -> Provider:
        """The ends that a compacted log need not keep any more leave it."""
        if not self.kept.compacted:
            return self
        return self._replace(
            log=tuple(
                entry
                for entry in self.log
                if not entry.ends or now_s - entry.at_s <= self.kept.tombstone_retention_s
            )
        )

    def truncate(self) -> Provider:
        """The oldest record leaves a truncated log."""
        return self._replace(log=self.log[1:])

    def rebuild(self, now_s: int, *, further: bool) -> Provider:
        """The log is lost, and another one states what exists. Its offsets begin anew, or stand
        `further` than those of the old one, with a gap before them.
        """
        begin = self.next_place + 1 if further else 0
        offsets = tuple(one + 1 if further else 0 for one in self.next_offsets)
        rebuilt = self._replace(log=(), logs=self.logs + 1, next_place=begin, next_offsets=offsets)
        for key, version in self.live:
            rebuilt = rebuilt._append(key, now_s, version, ends=False)
        return rebuilt

    # -- what a client sees ----------------------------------------------------------------------

    def token(self, entry: Entry) -> str:
        log = 0 if self.kept.tokens_by_place else entry.log
        return f"{log}.{entry.place}.{entry.at_s}"

    def opens_after(self, token: str, now_s: int) -> int | None:
        """The place after which the stream is opened with a token; None: at the oldest record."""
        log, place, at_s = map(int, token.split("."))
        if log != (0 if self.kept.tokens_by_place else self.logs) or place >= self.next_place:
            return None
        # A token names a record (3.10): one with another time was of a log that is gone.
        if any(entry.place == place and entry.at_s != at_s for entry in self.log):
            return None
        if self.kept.compacted:
            return None if now_s - at_s > self.kept.tombstone_retention_s else place
        oldest = self.log[0].place if self.log else self.next_place
        return None if place < oldest - 1 else place

    def next_after(self, place: int) -> Entry | None:
        """The next record behind a place of the log."""
        return next((entry for entry in self.log if entry.place > place), None)
