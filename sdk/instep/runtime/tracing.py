"""Traces for OpenTelemetry: where the time between a frame and its commit goes.

Nothing is configured here. A process that has set a tracer provider, such as one that was started
by `opentelemetry-instrument`, gets spans; in every other one nothing is made, and OpenTelemetry is
not even imported.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

from instep.model.batches import Batch
from instep.model.messages import Message
from instep.model.records import RecordChunk

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

__all__ = ["Tracing"]

_NOTHING: Final = nullcontext()


class Tracing:
    """The spans of one consumer or receiver."""

    def __init__(self, **names: str) -> None:
        """`names`: attributes of all spans, such as the stream."""
        self._names = {f"instep.{name}": value for name, value in names.items()}
        self._tracer: Tracer | None = None

    def look(self) -> None:
        """Look whether the process makes traces by now."""
        self._tracer = _tracer()

    def chunk(self, chunk: RecordChunk, arrived_s: float) -> AbstractContextManager[None]:
        """While records that arrived then (seconds since 1970) are handled: from their first frame
        until their commit is durable.
        """
        if self._tracer is None:
            return _NOTHING
        facts = {"messaging.batch.message_count": len(chunk.records)}
        return self._from("instep.process", int(arrived_s * 1e9), facts, waits="instep.read_ahead")

    def commit(self, batch: Batch) -> AbstractContextManager[None]:
        """While a batch is committed."""
        if self._tracer is None:
            return _NOTHING
        position = batch.position
        return self._span(
            "instep.commit",
            {
                "instep.ordinal": position.ordinal,
                "instep.attempt": position.attempt,
                "instep.phase": str(position.phase),
                "messaging.batch.message_count": len(batch.records),
            },
        )

    @property
    def makes_spans(self) -> bool:
        """Whether the process makes traces."""
        return self._tracer is not None

    def messages(self, messages: Sequence[Message]) -> AbstractContextManager[None]:
        """While messages are committed: from the first one that came."""
        if self._tracer is None or not messages:
            return _NOTHING
        since_us = min(one.received_at_us for one in messages)
        facts = {"messaging.batch.message_count": len(messages)}
        return self._from("instep.receive", since_us * 1_000, facts, waits="instep.queue")

    def handle(self, message: Message) -> AbstractContextManager[None]:
        """While the handler has a message."""
        if self._tracer is None:
            return _NOTHING
        return self._span("instep.handle", {"messaging.message.id": message.id})

    @contextmanager
    def _from(
        self, name: str, since_ns: int, facts: dict[str, int], *, waits: str
    ) -> Iterator[None]:
        """A span that began before, with one for the wait until now."""
        tracer = self._tracer
        assert tracer is not None
        with tracer.start_as_current_span(
            name,
            start_time=since_ns,
            attributes={**self._names, **facts},
            # What fails inside says so; and a stream that is opened again has not failed.
            record_exception=False,
            set_status_on_exception=False,
        ):
            tracer.start_span(waits, start_time=since_ns).end()
            yield

    @contextmanager
    def _span(self, name: str, facts: dict[str, int | str]) -> Iterator[None]:
        assert self._tracer is not None
        with self._tracer.start_as_current_span(name, attributes={**self._names, **facts}):
            yield


def _tracer() -> Tracer | None:
    """The tracer of this process; None where nobody has set a provider."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    provider = trace.get_tracer_provider()
    # The proxy stands where there is none yet: its spans go nowhere, and cost something.
    if isinstance(provider, trace.ProxyTracerProvider):
        return None
    tracer: Tracer = provider.get_tracer("instep")
    return tracer
