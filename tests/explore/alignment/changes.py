"""A stream of CHANGE records (TR-548 5.2 of v3.2), as a world to explore.

An entity has two members. A CHANGE states one of them, alternately; every other record states both.
The log has whole entities: a record is sent as a CHANGE where nothing of the log can have been
compacted away since. A provider that `deviates` also sends CHANGEs of what is not there.

Beside what holds in every world:

- a CHANGE of what is not stored makes no row, and leads to one realignment: one more only once the
  entity was stated, or has ended, in between;
- no two of these realignments lie nearer to each other than `rebaseline_min_s`;
- none is made for a CHANGE behind the end of its entity;
- none stays owed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from instep.model.batches import Batch
from instep.model.position import UnknownState
from instep.model.records import Record, RecordType
from tests.explore.alignment.provider import Entry, Log
from tests.explore.alignment.world import FIELDS, AlignmentWorld, Bounds
from tests.explore.canonical import Canonical
from tests.explore.search import Violation

__all__ = ["ChangeWorld"]

_MIXED: Final = 1_000
"""More than there are versions: two of them are one number, below zero."""
_Content = tuple[int, int]
"""The versions that have stated its members."""


class ChangeWorld(AlignmentWorld):
    """The version of a row is that of the provider whose content it has, below zero where it has
    members that never were there together.
    """

    def __init__(
        self, log: Log, bounds: Bounds, *, deviates: bool = False, by_baseline: bool = False
    ) -> None:
        super().__init__(log, bounds, by_baseline=by_baseline)
        self.deviates = deviates
        self.contents: dict[int, _Content] = {}
        """Version → the entity as it then was."""
        self.parts: frozenset[tuple[int, int]] = frozenset()
        """Log and place of what may be sent as a CHANGE."""
        self.ended: dict[str, int] = {}
        """What has ended, and the attempt in which it was read: a store remembers it."""
        self.unknown: frozenset[str] = frozenset()
        """What a CHANGE has named that was not stored, and nothing has stated or ended since."""
        self.met: dict[str, str] = {}
        """Of the batch that is being committed."""
        self.allowed = 1
        """Attempts: the first, and one for each key that was unknown."""
        self.attempted_s = self.now_s

    # -- moves -----------------------------------------------------------------------------------

    def moves(self) -> Iterator[str]:
        yield from super().moves()
        if self.changes:
            live = dict(self.provider.live)
            for key in self.bounds.keys[: self.named + self.deviates]:
                if self.deviates or key in live:
                    yield f"change {key}"

    def _move(self, move: str) -> None:
        name, _, key = move.partition(" ")
        version, attempt = self.provider.next_version, self._attempt
        if name == "change":
            self._change(key)
        else:
            super()._move(move)
            if self.provider.next_version > version:
                self.contents = {**self.contents, version: (version, version)}
        if self._attempt > attempt:
            since_s = self.now_s - self.attempted_s
            if not self.bounds.faults and attempt and since_s < self.settings.rebaseline_min_s:
                raise Violation(f"two attempts within {since_s} s")
            self.attempted_s = self.now_s

    @property
    def _attempt(self) -> int:
        return self.position.attempt if self.core is None else self.core.position.attempt

    def _change(self, key: str) -> None:
        self.changes -= 1
        provider, version = self.provider, self.provider.next_version
        before = dict(provider.live).get(key)
        if before is None:
            self.named = max(self.named, self.bounds.keys.index(key) + 1)
            provider = provider._replace(next_version=version + 1)
            # In capitals: it supersedes nothing, and would else let the end be compacted away.
            self.provider = provider._append(key.upper(), self.now_s, version, ends=False)
            content = (version, version)
        else:
            self.provider = provider.state(key, self.now_s)
            content = _changed(self.contents[before], version)
        self.contents = {**self.contents, version: content}
        entry = self.provider.log[-1]
        self.parts |= {(entry.log, entry.place)}

    def _record(self, entry: Entry) -> Record:
        record = super()._record(entry)
        kept = self.provider.kept
        young = not kept.compacted or self.now_s - entry.at_s <= kept.compaction_delay_s
        if (entry.log, entry.place) in self.parts and (young or entry.key.isupper()):
            key = entry.key.lower()
            return replace(record, key=key, kind=RecordType.CHANGE, whole=False)
        return record

    # -- the store -------------------------------------------------------------------------------

    @property
    def _may_realign(self) -> bool:
        return super()._may_realign or self.deviates

    def _commit(self, core: object, batch: Batch) -> None:
        self.met = {}
        super()._commit(core, batch)  # type: ignore[arg-type]

    def _unknown_entities(self) -> dict[str, str]:
        return self.met

    def _apply(self, record: Record, batch: Batch) -> None:
        row = self.rows.get(record.key)
        if record.kind is RecordType.CHANGE:
            if row is None:
                if record.key not in self.ended:
                    self._name_unknown(record.key)
                return
            record = replace(
                record, kind=RecordType.CREATE_UPDATE, body=self._merged(row.version, record)
            )
        else:
            self.unknown -= {record.key}
            self.met.pop(record.key, None)
            if record.ends:
                self.ended = {**self.ended, record.key: batch.position.attempt}
        super()._apply(record, batch)

    def _name_unknown(self, key: str) -> None:
        self.met[key] = ""
        if key not in self.unknown:
            self.unknown |= {key}
            self.allowed += 1

    def _merged(self, stored: int, record: Record) -> bytes:
        """The version that the row has after a CHANGE."""
        merged = _changed(self._content(stored), int(bytes(record.body)))
        newest = max(merged)
        if self.contents.get(newest) != merged:
            newest = -(merged[0] * _MIXED + merged[1])
        return b"%d" % newest

    def _content(self, version: int) -> _Content:
        if version >= 0:
            return self.contents[version]
        first, second = divmod(-version, _MIXED)
        return first, second

    def _sweep(self, attempt: int, *, by_classes: bool) -> int:
        self.ended = {key: read for key, read in self.ended.items() if read >= attempt}
        return super()._sweep(attempt, by_classes=by_classes)

    # -- what must hold --------------------------------------------------------------------------

    def check(self) -> None:
        if not self.bounds.faults and not self.bounds.commands and self._attempt > self.allowed:
            raise Violation(f"{self._attempt} attempts, {self.allowed} are allowed")
        super().check()

    def settling(self) -> str:
        return super().settling() or ("wait" if self._is_owed else "")

    @property
    def _is_owed(self) -> bool:
        if self.core is None:
            return False
        return any(
            one.state in (UnknownState.DUE, UnknownState.SOUGHT)
            for one in self.core.position.unknown.values()
        )

    def key(self) -> bytes:
        out = Canonical(FIELDS, self.now_s * 1_000_000, eldest_us=5_000_000)
        versions = [version for _, version in self.provider.live]
        versions += [row.version for _, row in sorted(self.rows.items())]
        versions += [entry.version for entry in self.provider.log]
        for version in versions:
            for stated in self._content(version):
                out.ranked("version", stated)
        out.literal(tuple((one.log, one.place) in self.parts for one in self.provider.log))
        out.literal((self.provider.next_version % 2, tuple(sorted(self.unknown))))
        out.literal(tuple(sorted(self.ended)))
        out.literal(tuple(read >= self._attempt for _, read in sorted(self.ended.items())))
        if not self.bounds.faults:
            out.literal(self.allowed - self._attempt)
            out.time(self.attempted_s * 1_000_000)
        return super().key() + out.key()


def _changed(content: _Content, version: int) -> _Content:
    return (content[0], version) if version % 2 else (version, content[1])
