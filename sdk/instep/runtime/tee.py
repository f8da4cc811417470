"""Feeds several sinks from one source.

Each sink has its own position and alignment, as if it were the only one. It shares one connection
with the others as long as it keeps up (`instep.runtime.streams.fan_out`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from instep.errors import ConfigurationError
from instep.ports.sink import Sink
from instep.ports.source import Source
from instep.runtime.conformance import LiveConformance
from instep.runtime.consumer import Consumer
from instep.runtime.retry import Environment
from instep.runtime.settings import ConsumerSettings
from instep.runtime.streams.fan_out import SharedSource

__all__ = ["TeeSink"]


TEE_EXAMPLE: Final = (
    'for example sinks = [{ kind = "sql", url = "…" }, { kind = "delta", url = "…" }]'
)


class TeeSink:
    """Several sinks fed from one source: SQL for current state and Delta for history, for example.

    ::

        tee = TeeSink([SqlStore("sqlite:///network.db"), DeltaSink("file:///var/lib/lake")])
        async with Group(tee.consumers("optical-east", source)) as group:
            await group.aligned()

    Promised: each sink continues from its own position after a crash. A slow or failing sink never
    delays another, and what it lags is buffered up to the bound of `SharedSource` only.
    """

    def __init__(self, sinks: Sequence[Sink]) -> None:
        if len(sinks) < 2:
            raise ConfigurationError(
                "a tee has two sinks or more", where="TeeSink", hint=TEE_EXAMPLE
            )
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
        conformance: LiveConformance | None = None,
    ) -> list[Consumer]:
        """A consumer for each sink, all with this name; run them in a `Group`."""
        shared = SharedSource(source, len(self.sinks))
        return [
            Consumer(name, shared, sink, settings, environment=environment, conformance=conformance)
            for sink in self.sinks
        ]
