"""The plug-in `tee` of `instep.sinks`: `kind = "tee"`, several sinks from one consumer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from instep.config.file import PluginConfiguration
from instep.config.options import unknown_key
from instep.config.plugins import build_sink, shown_sink, sink_plugin
from instep.errors import ConfigurationError
from instep.ports.reader import StoreReader
from instep.runtime.tee import TEE_EXAMPLE, TeeSink

__all__ = ["TeePlugin", "sink"]


class SinkTable(msgspec.Struct, frozen=True):
    """One of the sinks; its other keys are those of its kind."""

    kind: str
    """An entry point of `instep.sinks`, but `tee`."""
    options: dict[str, Any] = {}


class TeeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The table of a tee: several sinks, which one consumer keeps in step."""

    sinks: Annotated[tuple[SinkTable, ...], msgspec.Meta(min_length=2)]
    """The sinks, each a table with its `kind`."""


class TeePlugin:
    """The plug-in. Its `build` returns a `TeeSink`; `instep run` uses the sinks in it."""

    options = TeeOptions

    def check(self, options: Mapping[str, Any], where: str) -> None:
        """Raise `ConfigurationError` for anything wrong in any of the sinks."""
        for part in _parts(options, where):
            sink_plugin(part.kind, f"{part.where}.kind").check(part.options, part.where)

    def build(self, options: Mapping[str, Any], where: str) -> TeeSink:
        """The sinks, none of them opened. Raises `ConfigurationError`."""
        return TeeSink([build_sink(part) for part in _parts(options, where)])

    def shown(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """The table as it is written, without what may be secret in any of the sinks."""
        parts = _parts(table, "tee")
        return {"sinks": [{"kind": part.kind, **shown_sink(part)} for part in parts]}

    def reads(self, url: str) -> bool:  # noqa: ARG002 — the port's word
        """False: no URL names a tee."""
        return False

    def reader(self, url: str) -> StoreReader:  # noqa: ARG002 — the port's word
        """Raise `ConfigurationError`: each store of a tee is read by itself."""
        raise ConfigurationError(
            "a tee has several stores", where="tee", hint="name one of them with --store URL"
        )


def _parts(options: Mapping[str, Any], where: str) -> list[PluginConfiguration]:
    for key in options:
        if key not in ("kind", "sinks"):
            raise unknown_key(key, ("sinks",), where)
    sinks = options.get("sinks")
    if not isinstance(sinks, list) or len(sinks) < 2:
        raise ConfigurationError(
            "the key 'sinks' has to list two sinks or more", where=where, hint=TEE_EXAMPLE
        )
    parts = []
    for index, table in enumerate(sinks):
        place = f"{where}.sinks[{index}]"
        kind = table.get("kind") if isinstance(table, dict) else None
        if not isinstance(kind, str) or kind == "tee":
            raise ConfigurationError(
                "this cannot be a sink of a tee: its kind is missing, or it is a tee itself",
                where=place,
                hint=TEE_EXAMPLE,
            )
        rest = {key: value for key, value in table.items() if key != "kind"}
        parts.append(PluginConfiguration(kind, place, rest, rest, {}))
    return parts


sink: Final = TeePlugin()
