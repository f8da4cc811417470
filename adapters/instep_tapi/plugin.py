"""What the entry point `instep.sources: tapi` names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from instep.ports import Source, SourcePlugin, StreamInfo
from instep.records import Delivery, Unreadable
from instep_tapi.deviations import DEVIATIONS
from instep_tapi.options import read_options
from instep_tapi.reader import reader_of
from instep_tapi.source import TapiSource
from instep_tapi.transport import tls_context

__all__ = ["source"]


class _Plugin:
    deviations = DEVIATIONS

    def check(self, options: Mapping[str, Any], where: str) -> None:
        tls_context(read_options(options, where).tls, f"{where}.tls")

    def build(self, options: Mapping[str, Any], where: str) -> Source:
        return TapiSource(read_options(options, where), where)

    def decode(self, raw: bytes, stream: StreamInfo) -> Delivery:
        if stream.details.get("verified"):
            reason = "its authenticity was to be checked, which needs the consumer: realign instead"
            return Delivery([], [Unreadable(stream.id, raw, reason)])
        return reader_of(stream).read([raw])


source: Final = _Plugin()
"""Reads TR-548 streams over RESTCONF and WebSocket."""

if TYPE_CHECKING:
    _: SourcePlugin = source
