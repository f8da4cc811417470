"""The plug-in `sql` of the entry-point group `instep.sinks`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from instep.config.shown import shown_table

if TYPE_CHECKING:
    from instep.coordination.lease import LeaseState
    from instep.model.entities import StreamStatus
    from instep_sql.options import SqlOptions
    from instep_sql.reader import SqlReader
    from instep_sql.store import SqlStore

__all__ = ["SqlPlugin", "sink"]

# ruff: noqa: PLC0415 — each method imports what it needs: SQLAlchemy takes long to import


class SqlPlugin:
    """Implements `instep.ports.plugin.SinkPlugin`."""

    @property
    def options(self) -> type[SqlOptions]:
        """The keys of a table."""
        from instep_sql.options import options_type

        return options_type()

    def check(self, options: Mapping[str, Any], where: str) -> None:
        """Raise `ConfigurationError` for wrong options; connects to nothing."""
        from instep_sql.engine.registry import dialect_of
        from instep_sql.options import SqlOptions

        dialect_of(SqlOptions.read(options, where), where)

    def build(self, options: Mapping[str, Any], where: str) -> SqlStore:
        """A store of these options, not yet open. Raises `ConfigurationError`."""
        from instep_sql.options import SqlOptions
        from instep_sql.store import SqlStore

        return SqlStore(**msgspec.to_builtins(SqlOptions.read(options, where)))

    def shown(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """The table as it is written, without what may be secret."""
        return shown_table(self.options, table)

    def reads(self, url: str) -> bool:
        """Whether this plug-in reads the store of a `--store URL`."""
        return url.startswith(("sqlite:", "postgresql:", "postgresql+"))

    def reader(self, url: str) -> SqlReader:
        """Open the store of another process for reading. Raises `SinkError` when it is read."""
        from instep_sql.options import SqlOptions
        from instep_sql.reader import SqlReader, now_us

        options = SqlOptions.read({"url": url}, "--store", derived=False)
        return SqlReader(options, clock_us=now_us)

    def quick_status(self, url: str) -> tuple[list[StreamStatus], dict[str, LeaseState]] | None:
        """What `reader` returns for `instep status`; None: it has to be asked."""
        from instep_sql.status_rows import file_status

        return file_status(url)


sink: Final = SqlPlugin()
