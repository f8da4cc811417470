"""What the entry points of plug-ins name: objects with the shape of `SourcePlugin` (group
`instep.sources`), `SinkPlugin` (`instep.sinks`) or `VerifierPlugin` (`instep.verifiers`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from instep.model.records import RecordChunk
from instep.model.streams import StreamInfo
from instep.ports.listener import Listener
from instep.ports.publish_target import PublishTarget
from instep.ports.reader import StoreReader
from instep.ports.sink import (
    Sink,
)
from instep.ports.source import Source

__all__ = ["SinkPlugin", "SourcePlugin", "TargetPlugin", "Verifier", "VerifierPlugin"]


class SourcePlugin(Protocol):
    """What an entry point of `instep.sources` names.

    It may have `deviations` besides: kind → what that departure from the specification means;
    `shown` and `options`, as a `SinkPlugin`; `classes`, the names of all entity classes that its
    specification knows; and `warnings(options)`: sentences about what may be lost with these
    options, or not found, which `instep check` shows; and `judge(options, where, seconds, record,
    note)`, a coroutine that reads the provider for so long, gives each event to `record`, and what
    keeps it from seeing more to `note`. Methods must not block. `where` names the
    place of the options in the configuration, for errors.
    """

    def check(self, options: Mapping[str, Any], where: str) -> None:
        """Raise `ConfigurationError` for anything wrong; connect to nothing."""
        ...

    def build(self, options: Mapping[str, Any], where: str) -> Source | Listener:
        """A source of streams, or a listener for numbered messages; not yet connected.

        `options` were checked before, without `kind`. Raises `ConfigurationError`.
        """
        ...

    def decode(self, raw: bytes, stream: StreamInfo) -> RecordChunk:
        """Read the bytes of one frame or record of this stream again (quarantine replay).

        Never raises: what cannot be read still is `Unreadable` in the chunk (A11).
        """
        ...


class TargetPlugin(Protocol):
    """What an entry point of `instep.targets` names: where the events of a publisher go.

    It may have `shown` and `options`, as a `SinkPlugin`. Methods must not block.
    """

    def check(self, options: Mapping[str, Any], where: str) -> None:
        """Raise `ConfigurationError` for anything wrong; connect to nothing."""
        ...

    def build(
        self, options: Mapping[str, Any], where: str
    ) -> AbstractAsyncContextManager[PublishTarget]:
        """A target, not yet connected. It may be asked for again, after an error."""
        ...


class SinkPlugin(Protocol):
    """What an entry point of `instep.sinks` names. Methods must not block.

    It may have a method `shown(table)` besides: the table as it is written in the file, with each
    value that may be secret as an `instep.config.secret.Secret` (`instep.config.shown` makes it
    from the struct of the options). Without it, `instep check` shows no value of the table.
    And it may have `options`, the `msgspec.Struct` that the table is read into, with a text below
    each attribute: with it, `instep config` knows the keys. Where a reader takes long to import, it
    may have `quick_status(url)`: what `streams()` and `leases()` of the reader return, of a store
    without numbered sequences, and without a peer that is judged; None where the reader has to be
    asked.
    """

    def check(self, options: Mapping[str, Any], where: str) -> None:
        """Raise `ConfigurationError` for anything wrong, named with `where`; connect to nothing."""
        ...

    def build(self, options: Mapping[str, Any], where: str) -> Sink:
        """The sink of these options, not yet opened. Raises `ConfigurationError`."""
        ...

    def reads(self, url: str) -> bool:
        """Whether a `--store URL` is of this kind."""
        ...

    def reader(self, url: str) -> StoreReader:
        """Read access to the store at this URL, which another process may be writing. It need not
        be connected yet. Raises `SinkError`, `ConfigurationError`.
        """
        ...


class Verifier(Protocol):
    """Verifies that a record comes from the expected provider (TR-548 3.10)."""

    def verify(self, record: bytes, token: str) -> bool:
        """Whether this authenticity token belongs to these bytes. Never raises; does not wait."""
        ...


class VerifierPlugin(Protocol):
    """What an entry point of `instep.verifiers` names."""

    def check(self, options: Mapping[str, Any], where: str) -> None:
        """Raise `ConfigurationError` for anything wrong; connect to nothing."""
        ...

    def build(self, options: Mapping[str, Any], where: str) -> Verifier:
        """The verifier of these options. Raises `ConfigurationError`."""
        ...
