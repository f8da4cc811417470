"""The plug-in `sql` of the entry-point group `instep.sinks`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from instep.config.shown import shown_table
from instep.ports.reader import StoreReader
from instep_sql.engine.registry import dialect_of
from instep_sql.options import SqlOptions

if TYPE_CHECKING:
    from instep_sql.store import SqlStore

__all__ = ["SqlPlugin", "sink"]


class SqlPlugin:
    """Implements `instep.ports.plugin.SinkPlugin`."""

    options = SqlOptions

    def check(self, options: Mapping[str, Any], where: str) -> None:
        """Raise `ConfigurationError` for wrong options; connects to nothing."""
        dialect_of(SqlOptions.read(options, where), where)

    def build(self, options: Mapping[str, Any], where: str) -> SqlStore:
        """A store of these options, not yet open. Raises `ConfigurationError`."""
        from instep_sql.store import SqlStore  # noqa: PLC0415 — reading a store needs none of it

        return SqlStore(**msgspec.to_builtins(SqlOptions.read(options, where)))

    def shown(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """The table as it is written, without what may be secret."""
        return shown_table(SqlOptions, table)

    def reads(self, url: str) -> bool:
        """Whether this plug-in reads the store of a `--store URL`."""
        return url.startswith(("sqlite:", "postgresql:", "postgresql+"))

    def reader(self, url: str) -> StoreReader:
        """Open the store of another process for reading. Raises `SinkError` when it is read."""
        from instep_sql.reader import SqlReader, now_us  # noqa: PLC0415 — checking needs none

        return SqlReader(SqlOptions.read({"url": url}, "--store"), clock_us=now_us)


sink: Final = SqlPlugin()
