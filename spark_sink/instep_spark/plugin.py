"""The plug-in `delta` of the entry-point group `instep.sinks`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from instep.config.shown import shown_table
from instep.ports.reader import StoreReader
from instep_spark.landing.sink import DeltaSink, now_us
from instep_spark.options import SCHEMES, DeltaOptions
from instep_spark.reading.reader import DeltaReader

__all__ = ["DeltaPlugin", "sink"]


class DeltaPlugin:
    """Implements `instep.ports.plugin.SinkPlugin`."""

    options = DeltaOptions

    def check(self, options: Mapping[str, Any], where: str) -> None:
        """Raise `ConfigurationError` for anything wrong; connect to nothing."""
        DeltaOptions.read(options, where)

    def build(self, options: Mapping[str, Any], where: str) -> DeltaSink:
        """A sink of these options, not yet open. Raises `ConfigurationError`."""
        DeltaOptions.read(options, where)
        return DeltaSink(**{key: value for key, value in options.items() if key != "kind"})

    def shown(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """The table as it is written, without what may be secret."""
        return shown_table(DeltaOptions, table)

    def reads(self, url: str) -> bool:
        """Whether a `--store URL` is of this kind."""
        return url.partition(":")[0] in SCHEMES

    def reader(self, url: str) -> StoreReader:
        """Read a lake with the keys of the environment. Raises `SinkError` when it is read."""
        return DeltaReader(DeltaOptions.read({"url": url}, "--store"), clock_us=now_us)


sink: Final = DeltaPlugin()
