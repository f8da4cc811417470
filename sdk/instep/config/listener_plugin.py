"""The plug-in of a source that listens for numbered messages, whatever its protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from instep.config.shown import shown_table
from instep.model.records import RecordChunk, Unreadable
from instep.model.streams import StreamInfo
from instep.ports.listener import Listener

__all__ = ["ListenerPlugin"]

OptionsT = TypeVar("OptionsT", bound=msgspec.Struct)


class ListenerPlugin(Generic[OptionsT]):
    """What an entry point of `instep.sources` names; `instep.ports.plugin.SourcePlugin`.

    Args:
        options: The struct of the options.
        read_options: Reads a table into it. Raises `ConfigurationError`.
        listener: Makes a listener, which listens to nothing yet. Raises `ConfigurationError`.
        deviations: Kind → what that departure from the specification means.
        risks: What may be lost with these options, for `instep check`.
    """

    def __init__(
        self,
        options: type[OptionsT],
        read_options: Callable[[Mapping[str, Any], str], OptionsT],
        listener: Callable[[OptionsT, str], Listener],
        deviations: Mapping[str, str],
        risks: Callable[[OptionsT], list[str]] | None = None,
    ) -> None:
        self.options = options
        self.deviations = deviations
        self._read_options = read_options
        self._listener = listener
        self._risks = risks

    def check(self, options: Mapping[str, Any], where: str) -> None:
        self.build(options, where)

    def build(self, options: Mapping[str, Any], where: str) -> Listener:
        return self._listener(self._read_options(options, where), where)

    def warnings(self, options: Mapping[str, Any]) -> list[str]:
        return [] if self._risks is None else self._risks(self._read_options(options, "source"))

    def shown(self, table: Mapping[str, Any]) -> dict[str, Any]:
        return shown_table(self.options, table)

    def decode(self, raw: bytes, stream: StreamInfo) -> RecordChunk:
        reason = "a message is replayed as it was received, not read again"
        return RecordChunk([], [Unreadable(stream.id, raw, reason)])
