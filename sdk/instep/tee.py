"""Several sinks from one consumer: `kind = "tee"`, the plug-in `tee` of `instep.sinks`.

Each sink has its own position and alignment, as if it were consumed alone, and reads the provider
through one connection with the others as long as it keeps up (`instep.shared_source`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from instep.config import Part, unknown_key
from instep.consumer import Consumer
from instep.errors import ConfigurationError
from instep.plugins import build_sink, sink_plugin
from instep.ports import Sink, Source
from instep.reading import StoreReader
from instep.retry import Environment
from instep.settings import ConsumerSettings
from instep.shared_source import SharedSource

__all__ = ["TeePlugin", "TeeSink", "sink"]

_EXAMPLE: Final = 'for example sinks = [{ kind = "sql", url = "…" }, { kind = "delta", url = "…" }]'


class TeeSink:
    """Sinks that one consumer feeds: SQL for the present and Delta for the past, say.

    ::

        tee = TeeSink([SqlStore("sqlite:///network.db"), DeltaSink("file:///var/lib/lake")])
        async with Group(tee.consumers("optical-east", source)) as group:
            await group.aligned()

    Promised: each sink goes on from its own position after a crash; a slow or failing one never
    holds another back, and what it lags is kept in memory up to the bound of `SharedSource` only.
    """

    def __init__(self, sinks: Sequence[Sink]) -> None:
        if len(sinks) < 2:
            raise ConfigurationError("a tee has two sinks or more", where="TeeSink", hint=_EXAMPLE)
        self.sinks = tuple(sinks)

    def __repr__(self) -> str:
        return f"<TeeSink {', '.join(map(repr, self.sinks))}>"

    def consumers(
        self,
        name: str,
        source: Source,
        settings: ConsumerSettings | None = None,
        *,
        environment: Environment | None = None,
    ) -> list[Consumer]:
        """A consumer for each sink, all of this name; to be run in a `Group`."""
        shared = SharedSource(source, len(self.sinks))
        return [
            Consumer(name, shared, sink, settings, environment=environment) for sink in self.sinks
        ]


class TeePlugin:
    """The plug-in: its `build` gives a `TeeSink`, which `instep run` takes apart."""

    def check(self, options: Mapping[str, Any], where: str) -> None:
        """Raise `ConfigurationError` for anything wrong in any of the sinks."""
        for part in _parts(options, where):
            sink_plugin(part.kind, f"{part.where}.kind").check(part.options, part.where)

    def build(self, options: Mapping[str, Any], where: str) -> TeeSink:
        """The sinks, none of them opened. Raises `ConfigurationError`."""
        return TeeSink([build_sink(part) for part in _parts(options, where)])

    def reads(self, url: str) -> bool:  # noqa: ARG002 — the port's word
        """No URL names a tee."""
        return False

    def reader(self, url: str) -> StoreReader:  # noqa: ARG002 — the port's word
        """Raises `ConfigurationError`: each store of a tee is read by itself."""
        raise ConfigurationError(
            "a tee has several stores", where="tee", hint="name one of them with --store URL"
        )


def _parts(options: Mapping[str, Any], where: str) -> list[Part]:
    for key in options:
        if key not in ("kind", "sinks"):
            raise unknown_key(key, ("sinks",), where)
    sinks = options.get("sinks")
    if not isinstance(sinks, list) or len(sinks) < 2:
        raise ConfigurationError(
            "the key 'sinks' has to list two sinks or more", where=where, hint=_EXAMPLE
        )
    parts = []
    for index, table in enumerate(sinks):
        place = f"{where}.sinks[{index}]"
        kind = table.get("kind") if isinstance(table, dict) else None
        if not isinstance(kind, str) or kind == "tee":
            raise ConfigurationError(
                "this is no sink: its kind is missing, or a tee itself", where=place, hint=_EXAMPLE
            )
        rest = {key: value for key, value in table.items() if key != "kind"}
        parts.append(Part(kind, place, rest, rest, {}))
    return parts


sink: Final = TeePlugin()
