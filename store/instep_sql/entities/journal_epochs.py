"""The epochs of the journal, as Kafka has them of a partition's leaders: of which writing of the
journal a cursor is.

A restored backup, a promoted replica that lagged, and a copied file give the cursors that they had
not seen a second time, to other changes. So each connection that appends to the journal begins an
epoch, under a name that nobody else can find. A cursor with the name of its epoch is of this
journal where the epoch is known, and does not end before the cursor.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

import msgspec
from sqlalchemy import Connection, text

from instep.errors import ChangesTrimmedError, JournalDivergedError
from instep_sql.engine.dialect import Dialect

__all__ = ["JournalEpochs", "read_epochs"]

_EPOCHS: Final = text("SELECT start_cursor, epoch FROM instep_journal_epoch ORDER BY start_cursor")
_OLDEST: Final = text("SELECT min(cursor) FROM instep_change")


class JournalEpochs(msgspec.Struct, frozen=True):
    """What a transaction sees of the journal: its newest and oldest change, and its epochs."""

    newest: int
    """The newest cursor that was ever assigned."""
    oldest: int | None
    """The oldest change that is kept; None: none is."""
    starts: list[int]
    names: list[str]

    def of(self, cursor: int) -> str:
        """The epoch of the change with this cursor; empty for 0, which is before all changes."""
        place = bisect_right(self.starts, cursor)
        return self.names[place - 1] if place else ""

    def check(self, cursor: int, epoch: str, where: str) -> None:
        """Raise `JournalDivergedError` where a cursor is not of this journal, and
        `ChangesTrimmedError` where changes after it are no longer kept.
        """
        if cursor > self.newest:
            raise self._diverged(cursor, f"the newest change is {self.newest}", where)
        if cursor and self.oldest is not None and self.oldest > cursor + 1:
            raise ChangesTrimmedError(
                f"changes {cursor + 1} to {self.oldest - 1} are no longer kept",
                where=where,
                hint="read the entities anew, or raise journal_retention_records",
                oldest=self.oldest,
            )
        if cursor and epoch:
            last = self._last(epoch)
            if last is None:
                raise self._diverged(cursor, "its epoch is not of this journal", where)
            if cursor > last:
                raise self._diverged(cursor, f"its epoch ends with {last} here", where)

    def _last(self, epoch: str) -> int | None:
        """The last cursor of an epoch; None for one that is not known."""
        if epoch not in self.names:
            return None
        after = self.names.index(epoch) + 1
        return self.starts[after] - 1 if after < len(self.starts) else self.newest

    def _diverged(self, cursor: int, why: str, where: str) -> JournalDivergedError:
        return JournalDivergedError(
            f"cursor {cursor} is of another journal: {why}",
            where=where,
            hint="the store was restored, copied, or a replica that lagged was promoted: read the"
            " entities anew, and subscribe from a cursor taken before that",
            newest=self.newest,
        )


def read_epochs(connection: Connection, dialect: Dialect) -> JournalEpochs:
    """The journal as this transaction sees it."""
    newest: int = connection.exec_driver_sql(dialect.newest_cursor).scalar_one()
    rows = connection.execute(_EPOCHS).all()
    oldest: int | None = connection.execute(_OLDEST).scalar()
    return JournalEpochs(
        newest, oldest, [row.start_cursor for row in rows], [row.epoch for row in rows]
    )
