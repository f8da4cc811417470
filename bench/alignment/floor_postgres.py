"""The floor's table in PostgreSQL: asyncpg's COPY into a temporary table, one merge from there."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import asyncpg

from bench.alignment.floor_kept import Kept

__all__ = ["PostgresTable"]

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS entity (
    key text PRIMARY KEY, token text NOT NULL, appended_at text NOT NULL, body bytea NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS change (
    cursor bigserial PRIMARY KEY, key text NOT NULL, class text NOT NULL, token text NOT NULL,
    appended_at text NOT NULL, committed_at float8 NOT NULL, envelope bytea NOT NULL);
CREATE TABLE IF NOT EXISTS position (stream int PRIMARY KEY, token text NOT NULL);
CREATE TEMPORARY TABLE incoming (LIKE entity) ON COMMIT DELETE ROWS;
SET temp_buffers = '32MB';
SET synchronous_commit = off;
"""
_MERGE: Final = """
INSERT INTO entity SELECT * FROM incoming ON CONFLICT (key) DO UPDATE SET
    token = excluded.token, appended_at = excluded.appended_at, body = excluded.body
"""
_MOVE: Final = """
INSERT INTO position VALUES (1, $1) ON CONFLICT (stream) DO UPDATE SET token = excluded.token
"""


class PostgresTable:
    """The database, used by one thread, in a loop of its own."""

    def __init__(self, url: str, *, journal: bool, kept: str = "") -> None:
        assert not kept, "only the floor of SQLite keeps more than entities"
        self.kept = kept
        self._loop = asyncio.new_event_loop()
        self.journal = journal
        self._db: Any = self._loop.run_until_complete(asyncpg.connect(url))
        self._loop.run_until_complete(self._db.execute(_SCHEMA))

    def token(self) -> str | None:
        found = self._loop.run_until_complete(self._db.fetchval("SELECT token FROM position"))
        return None if found is None else str(found)

    def write(
        self,
        rows: list[tuple[Any, ...]],
        changes: list[tuple[Any, ...]],
        token: str,
        _kept: Kept,
    ) -> None:
        """One transaction."""
        self._loop.run_until_complete(self._write(rows, changes, token))

    async def _write(
        self, rows: list[tuple[Any, ...]], changes: list[tuple[Any, ...]], token: str
    ) -> None:
        db = self._db
        async with db.transaction():
            await db.copy_records_to_table("incoming", records=rows)
            await db.execute(_MERGE)
            if self.journal:
                columns = ("key", "class", "token", "appended_at", "committed_at", "envelope")
                await db.copy_records_to_table("change", records=changes, columns=columns)
            await db.execute(_MOVE, token)

    def close(self) -> None:
        self._loop.run_until_complete(self._db.close())
        self._loop.close()
