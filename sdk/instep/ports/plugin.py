"""What the entry points of plug-ins name: objects with the shape of `SourcePlugin` (group
`instep.sources`), `SinkPlugin` (`instep.sinks`) or `VerifierPlugin` (`instep.verifiers`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from instep.model.records import RecordChunk
from instep.model.streams import StreamInfo
from instep.ports.listener import Listener
from instep.ports.reader import StoreReader
from instep.ports.sink import (
    Sink,
)
from instep.ports.source import Source

__all__ = ["SinkPlugin", "SourcePlugin", "Verifier", "VerifierPlugin"]


class SourcePlugin(Protocol):
    """What an entry point of `instep.sources` names."""

    def check(self, options: Mapping[str, Any], where: str) -> None:
        """Raise `ConfigurationError` for anything wrong; connect to nothing."""
        ...

    def build(self, options: Mapping[str, Any], where: str) -> Source | Listener:
        """Not yet connected: a provider's streams, or a listener for numbered messages."""
        ...

    def decode(self, raw: bytes, stream: StreamInfo) -> RecordChunk:
        """Read the bytes of one frame or record of this stream again (quarantine replay)."""
        ...


class SinkPlugin(Protocol):
    """What an entry point of `instep.sinks` names."""

    def check(self, options: Mapping[str, Any], where: str) -> None: ...

    def build(self, options: Mapping[str, Any], where: str) -> Sink: ...

    def reads(self, url: str) -> bool:
        """Whether a `--store URL` is of this kind."""
        ...

    def reader(self, url: str) -> StoreReader:
        """Open the store of another process for reading. Raises `SinkError`."""
        ...


class Verifier(Protocol):
    """Tells whether a record comes from whom it should (TR-548 3.10)."""

    def verify(self, record: bytes, token: str) -> bool:
        """Whether this authenticity token belongs to these bytes. Never raises; does not wait."""
        ...


class VerifierPlugin(Protocol):
    """What an entry point of `instep.verifiers` names."""

    def check(self, options: Mapping[str, Any], where: str) -> None:
        """Raise `ConfigurationError` for anything wrong; connect to nothing."""
        ...

    def build(self, options: Mapping[str, Any], where: str) -> Verifier: ...
