"""What a run looks after beside its micro-batches, and when: small files are joined, files that no
version needs are deleted, and another reading of the logs is compared, in a bounded share of the
run's time.

Decisions only; `Lake` does what is due. Delta itself writes checkpoints, and with them drops the
log that is older than its retention.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

__all__ = ["VACUUMED_PROPERTY", "TableFiles", "Upkeep", "UpkeepTask"]

VACUUMED_PROPERTY: Final = "instep.vacuumed_s"
"""The property of `entities` that tells when all tables of the lake were vacuumed, in seconds since
1970."""
_LOOKED_AT: Final = 50
"""Micro-batches after which the files of the tables are counted."""
_FILES: Final = 64
"""So many small files a table may have, beside those of the size that it should have."""
_VACUUMED_S: Final = 86_400.0
_JOINED_BYTES_PER_S: Final = 20 << 20
"""What two cores rewrite, at the least: so long a table is expected to take the first time."""
_TASK_S: Final = 2.0


class TableFiles(msgspec.Struct, frozen=True):
    """The files of a table."""

    files: int
    bytes: int
    file_bytes: int
    """How large they should be."""


class UpkeepTask(msgspec.Struct, frozen=True):
    """What is due for a table."""

    what: Literal["optimize", "vacuum", "audit"]
    table: str


class Upkeep:
    """Chooses what is due and may be done now. Times are in seconds of one clock."""

    def __init__(self, share: float, begun_s: float) -> None:
        """`share`: of the time of the run; 0: nothing is done."""
        self._share = share
        self._begun_s = begun_s
        self._batches = 0
        self._due: list[UpkeepTask] = []
        self._expected_s: dict[UpkeepTask, float] = {}
        self.spent_s = 0.0
        self.files = 0
        """Files that were joined."""

    def batch_done(self) -> None:
        """A micro-batch has added files."""
        self._batches += 1

    def looks(self, now_s: float) -> bool:
        """Whether the files of the tables should be counted now."""
        return self._batches >= _LOOKED_AT and self._may(_TASK_S, now_s)

    def counted(self, found: Mapping[str, TableFiles]) -> None:
        """These are the files of the tables."""
        self._batches = 0
        for name, one in found.items():
            task = UpkeepTask("optimize", name)
            # Files of half the size are not joined again.
            if one.files > _FILES + 2 * one.bytes / one.file_bytes:
                self._add(task, _TASK_S + one.bytes / _JOINED_BYTES_PER_S)

    def vacuumed(self, at_s: float, now_s: float, tables: Iterable[str]) -> None:
        """All `tables` were vacuumed then; both times since 1970."""
        if now_s - at_s >= _VACUUMED_S:
            for name in tables:
                self._add(UpkeepTask("vacuum", name), _TASK_S)

    def audit_due(self) -> None:
        """The time for an audit has come."""
        self._add(UpkeepTask("audit", "reconciliation"), _TASK_S)

    def postpone(self, task: UpkeepTask, seconds: float) -> None:
        """The task cannot be done yet; to find that out has taken so long. Others come first."""
        self._due.remove(task)
        self._due.append(task)
        self.spent_s += seconds

    def _add(self, task: UpkeepTask, expected_s: float) -> None:
        self._expected_s.setdefault(task, expected_s)
        if task not in self._due:
            self._due.append(task)

    def next(self, now_s: float) -> UpkeepTask | None:
        """What to do now. None: nothing is due, or all of it would take more than the share."""
        for task in self._due:
            if self._may(self._expected_s[task], now_s):
                return task
        return None

    def done(self, task: UpkeepTask, seconds: float, files: int = 0) -> None:
        """The task has taken so long, and joined so many files."""
        self._due.remove(task)
        self._expected_s[task] = seconds
        self.spent_s += seconds
        self.files += files

    def spent(self, seconds: float) -> None:
        """To find out what is due has taken so long."""
        self.spent_s += seconds

    def waits_for(self, what: Literal["optimize", "vacuum"]) -> bool:
        """Whether some such task is still due."""
        return any(task.what == what for task in self._due)

    def _may(self, expected_s: float, now_s: float) -> bool:
        return self.spent_s + expected_s <= self._share * (now_s - self._begun_s)
