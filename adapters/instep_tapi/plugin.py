"""The plug-in object of the entry point `instep.sources: tapi`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from instep.config.shown import shown_table
from instep.model.records import Record, RecordChunk, Unreadable
from instep.model.streams import StreamInfo
from instep_tapi.deviations import DEVIATIONS

if TYPE_CHECKING:
    from instep.conformance import Event
    from instep.ports.plugin import SourcePlugin
    from instep.ports.source import Source
    from instep_tapi.options import Options

__all__ = ["source"]

# ruff: noqa: PLC0415 — each method imports what it needs: `instep status` needs the deviations only


class _Plugin:
    deviations = DEVIATIONS

    @property
    def options(self) -> type[Options]:
        from instep_tapi.options import Options

        return Options

    @property
    def classes(self) -> frozenset[str]:
        from instep_tapi.facts.classes import CLASS_MODEL

        return frozenset({*CLASS_MODEL.places, *CLASS_MODEL.spellings})

    def warnings(self, options: Mapping[str, Any]) -> list[str]:
        from instep.config.options import unknown_classes
        from instep_tapi.options import read_options

        streams = read_options(options, "source").streams
        return [
            told
            for key, names in (("classes", streams.classes), ("only_classes", streams.only_classes))
            for told in unknown_classes(names, self.classes, f"source.streams.{key}")
        ]

    def check(self, options: Mapping[str, Any], where: str) -> None:
        from instep_http import client_context
        from instep_tapi.options import read_options

        client_context(read_options(options, where).tls, f"{where}.tls")

    def build(self, options: Mapping[str, Any], where: str) -> Source:
        from instep_tapi.options import read_options
        from instep_tapi.source import TapiSource

        return TapiSource(read_options(options, where), where)

    async def judge(
        self,
        options: Mapping[str, Any],
        where: str,
        seconds: float,
        record: Callable[[Event], None],
        note: Callable[[str], None],
    ) -> None:
        from instep_tapi.conformance.probe import PROBED, probe_source
        from instep_tapi.options import read_options
        from instep_tapi.source import TapiSource

        source = TapiSource(read_options({**options, **PROBED}, where), where)
        await probe_source(source, seconds, record, note)

    def shown(self, table: Mapping[str, Any]) -> dict[str, Any]:
        return shown_table(self.options, table)

    def decode(self, raw: bytes, stream: StreamInfo) -> RecordChunk:
        if stream.details.get("verified"):
            reason = "its authenticity was to be checked, which needs the consumer: realign instead"
            return RecordChunk([], [Unreadable(stream.id, raw, reason)])
        from instep_tapi.wire.decoder import decoder_for

        chunk = decoder_for(stream).read([raw])
        kept = [one for one in chunk.records if isinstance(one, Record)]
        return msgspec.structs.replace(chunk, records=kept)


source: Final = _Plugin()
"""Reads TR-548 streams over RESTCONF and WebSocket."""

if TYPE_CHECKING:
    _: SourcePlugin = source
