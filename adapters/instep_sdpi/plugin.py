"""The plug-in of the entry point `instep.sources: sdpi`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from instep.config.shown import shown_table
from instep.conformance import Event
from instep.model.records import RecordChunk, Unreadable
from instep.model.streams import StreamInfo
from instep.ports.plugin import SourcePlugin
from instep.ports.source import Source
from instep_sdpi.deviations import DEVIATIONS
from instep_sdpi.event_sink import InjectedFault, receive_reports
from instep_sdpi.options import Options, client_tls, read_options, server_tls
from instep_sdpi.source import SdpiSource

__all__ = ["source"]


class _Plugin:
    deviations = DEVIATIONS
    options = Options

    def check(self, options: Mapping[str, Any], where: str) -> None:
        read = read_options(options, where)
        client_tls(read, where)
        server_tls(read, where)

    def build(self, options: Mapping[str, Any], where: str) -> Source:
        return SdpiSource(read_options(options, where), where)

    async def judge(
        self,
        options: Mapping[str, Any],
        where: str,
        seconds: float,
        record: Callable[[Event], None],
        note: Callable[[str], None],  # noqa: ARG002 - what keeps it from seeing more is an error
    ) -> None:
        source = SdpiSource(read_options(options, where), where)
        source.record(record)
        await receive_reports(source, seconds, InjectedFault())

    def shown(self, table: Mapping[str, Any]) -> dict[str, Any]:
        return shown_table(Options, table)

    def decode(self, raw: bytes, stream: StreamInfo) -> RecordChunk:
        reason = "a report counts within its session only: realign instead"
        return RecordChunk([], [Unreadable(stream.id, raw, reason)])


source: Final = _Plugin()
"""Follows BICEPS providers over SOAP and HTTP."""

if TYPE_CHECKING:
    _: SourcePlugin = source
