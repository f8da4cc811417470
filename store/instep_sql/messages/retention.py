"""How long the rows of a table of messages are kept: by number and by age."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, text

from instep_sql.engine.dialect import Dialect

__all__ = ["Retention"]

_TRIM_RECORDS: Final = 1_000


class Retention:
    """The retention of one table."""

    def __init__(
        self,
        dialect: Dialect,
        table: str,
        time: str,
        keep: int | None,
        age_s: float | None,
        row_bytes: int | None = None,
    ) -> None:
        picked = f"SELECT id FROM {table} WHERE {{}} ORDER BY id LIMIT :limit"  # noqa: S608 — constants only
        delete = f"DELETE FROM {table} WHERE id IN ({picked} {dialect.skip_locked})"  # noqa: S608
        self._sized = row_bytes is not None
        if row_bytes is not None:
            delete += f" RETURNING length(body) + {row_bytes}"
        over = f"id <= (SELECT max(id) FROM {table}) - :keep"  # noqa: S608
        old = f"id < (SELECT min(id) FROM {table}) + :limit AND {time} < :before_us"  # noqa: S608
        self._over, self._old = text(delete.format(over)), text(delete.format(old))
        self._keep = keep
        self._age_us = None if age_s is None else int(age_s * 1_000_000)

    def trim(self, connection: Connection, new: int, now_us: int) -> int:
        """Remove old rows, after `new` rows were added. Returns their bytes where rows have any."""
        limit = 2 * new + _TRIM_RECORDS
        gone_bytes = 0
        if self._keep is not None:
            gone = connection.execute(self._over, {"limit": limit, "keep": self._keep})
            gone_bytes += sum(gone.scalars()) if self._sized else 0
        if self._age_us is not None:
            before_us = now_us - self._age_us
            gone = connection.execute(self._old, {"limit": limit, "before_us": before_us})
            gone_bytes += sum(gone.scalars()) if self._sized else 0
        return gone_bytes
