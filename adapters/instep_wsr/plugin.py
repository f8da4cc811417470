"""The plug-in of the entry point `instep.sources: wsr`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from instep.config.shown import shown_table
from instep.model.records import RecordChunk, Unreadable
from instep.model.streams import StreamInfo
from instep_wsr.deviations import DEVIATIONS
from instep_wsr.listener import WsrListener
from instep_wsr.options import Options, read_options

__all__ = ["source"]


class _Plugin:
    deviations = DEVIATIONS
    options = Options

    def check(self, options: Mapping[str, Any], where: str) -> None:
        self.build(options, where)

    def build(self, options: Mapping[str, Any], where: str) -> WsrListener:
        return WsrListener(read_options(options, where), where)

    def shown(self, table: Mapping[str, Any]) -> dict[str, Any]:
        return shown_table(Options, table)

    def decode(self, raw: bytes, stream: StreamInfo) -> RecordChunk:
        reason = "a message is replayed as it was received, not read again"
        return RecordChunk([], [Unreadable(stream.id, raw, reason)])


source = _Plugin()
"""Receives groups of WS-Reliability messages over SOAP and HTTP."""
