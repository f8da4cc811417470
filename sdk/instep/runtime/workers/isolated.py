"""A consumer in a process of its own, so that what ends that process ends nothing else."""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from instep.errors import InstepError
from instep.runtime.health import ConsumerState, Health
from instep.runtime.lifecycle import Service
from instep.runtime.retry import Environment, backoff_s
from instep.runtime.settings import ConsumerSettings
from instep.runtime.workers.carried_health import counted, lost
from instep.runtime.workers.messages import PROCESS_SETTINGS, ConsumersReport, Reconfiguration
from instep.runtime.workers.process import WorkerLostError, WorkerProcess, how_ended

__all__ = ["IsolatedConsumer", "isolated"]

_WATCH_EVERY_S: Final = 0.5
_decode: Final = msgspec.msgpack.Decoder(ConsumersReport).decode
_log: Final = logging.getLogger("instep.workers")


def isolated(
    templates: Sequence[Service],
    settings: ConsumerSettings | None = None,
    *,
    program: Sequence[str],
    request: bytes,
    memory_limit_bytes: int = 0,
    environment: Environment | None = None,
) -> list[IsolatedConsumer]:
    """The consumers of one process; run them in a `Group`. `templates` are the same consumers as
    they are made here: they are never started, and tell what of a changed configuration is taken
    over.

    `program` are the arguments of the interpreter that make the process, which calls
    `instep.runtime.workers.isolated_program.run_isolated`; `request` says what it is made of. A
    process that takes more than `memory_limit_bytes` of memory (Linux; 0: any) is killed.

    Promised is what each of them promises, and:

    - Whatever ends the process (a signal, a mistake in a library, want of memory) ends no other
      consumer. It is told with its signal, and the process is started again, after the waits of two
      connections. What was durable continues.
    - Events and health are those of the consumers. Counts go on over the ends of the process.
    - The process ends when this one ends, however it ends.
    """
    environment = environment or Environment()
    settings = settings or ConsumerSettings()
    child = _Child(program, request, memory_limit_bytes, settings, environment.monotonic)
    child.consumers = [
        IsolatedConsumer(one, settings, environment, child=child, place=place)
        for place, one in enumerate(templates)
    ]
    return child.consumers


class IsolatedConsumer(Service):
    """One consumer of another process; see `isolated`."""

    def __init__(
        self,
        template: Service,
        settings: ConsumerSettings | None,
        environment: Environment | None,
        *,
        child: _Child,
        place: int,
    ) -> None:
        super().__init__(template.name, settings, environment)
        self._template = template
        self._child = child
        self._place = place
        self._before: Health | None = None
        """What processes that have ended had counted."""
        self._health: Health | None = None
        self._reported_s = 0.0
        """When it was last reported."""
        self._received_before = 0
        self._received_bytes: int | None = None
        self._aligned = False
        self._not_aligned: InstepError | None = None

    def __repr__(self) -> str:
        return f"<IsolatedConsumer {self.name}: {self.health().state}, process {self._child.pid}>"

    async def __aenter__(self) -> Self:
        """Start the process, once for all that are in it."""
        # The first one keeps it; the others end when they are stopped.
        self._begin(self._keep() if self._place == 0 else asyncio.sleep(float("inf")))
        return self

    @property
    def received_bytes(self) -> int | None:
        if self._received_bytes is None:
            return None
        return self._received_before + self._received_bytes

    async def aligned(self, timeout_s: float | None = None) -> None:
        """See `Consumer.aligned` and `Receiver.aligned`."""
        async with asyncio.timeout(timeout_s):
            await self._until(self._is_aligned)

    def health(self) -> Health:
        """The health as last reported. Never waits."""
        health = self._health
        if health is not None:
            health = health.aged(self._environment.monotonic() - self._reported_s)
        if health is None:
            health = Health(consumer=self.name, state=self._state, error="", streams=())
        elif self._child.is_stale and self._error is None:
            silent_s = self._child.silent_s()
            health = lost(health, f"its process has not reported for {silent_s:.0f} s")
            health = msgspec.structs.replace(health, state=ConsumerState.RETRYING)
        if self._error is not None:
            return msgspec.structs.replace(
                health, state=ConsumerState.FAILED, error=str(self._error)
            )
        if self._state is ConsumerState.STOPPED:
            return msgspec.structs.replace(health, state=self._state)
        return health

    def reconfigure(
        self, settings: ConsumerSettings, source: Mapping[str, Any] | None, where: str
    ) -> set[str]:
        """See `Service`: the process takes it over, also one that is started later."""
        left = self._template.reconfigure(settings, source, where)
        self._settings = settings
        self._child.reconfigure(settings, source, where)
        return left | PROCESS_SETTINGS

    # -- inner parts -----------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Keep the process running until cancelled, or until all in it have failed."""
        loop, failures, child = asyncio.get_running_loop(), 0, self._child
        while True:
            begun_s = loop.time()
            how = await child.run()
            if all(one.error is not None for one in child.consumers):
                return
            healthy = loop.time() - begun_s >= self._settings.healthy_after_s
            failures = 1 if healthy else failures + 1
            text = f"its process has ended {how}"
            if 0 < self._settings.reconnect_attempts <= failures:
                error = WorkerLostError(
                    text, where=self.name, hint="stderr has what it wrote; is memory short?"
                )
                for one in child.consumers:
                    one.fail(error)
                return
            wait_s = backoff_s(self._settings, self._environment, failures)
            told = f"{text}; it is started again in {wait_s:.1f} s"
            _log.error("%s: %s", self.name, told)
            for one in child.consumers:
                one.lose(text)
            self._emit("", "worker-lost", told)
            await asyncio.sleep(wait_s)

    def hear(self, report: ConsumersReport) -> None:
        """Take over what the process reports of this consumer."""
        if self._error is not None:
            return
        place = self._place
        self._health = counted(report.healths[place], self._before)
        self._reported_s = self._environment.monotonic()
        self._received_bytes = report.received_bytes[place]
        for of, event in report.events:
            if of == place:
                self._tell(event)
        self._aligned = place in report.aligned
        refused = report.not_aligned.get(place)
        self._not_aligned = None if refused is None else refused.error()
        if failure := report.failures.get(place):
            self.fail(failure.error())
        self._wake()

    def tell_started(self, pid: int | None) -> None:
        """The process reports for the first time."""
        self._emit("", "worker-started", f"it runs in process {pid}")

    def lose(self, why: str) -> None:
        """Show that its process has ended, until another one reports."""
        self._aligned, self._not_aligned = False, None
        if self._received_bytes is not None:
            self._received_before, self._received_bytes = (
                self._received_before + self._received_bytes,
                0,
            )
        if self._health is not None and self._error is None:
            self._before = self._health
            self._health = msgspec.structs.replace(
                lost(self._health, why), state=ConsumerState.RETRYING
            )
        self._wake()

    def fail(self, error: InstepError) -> None:
        """It has failed for good."""
        if self._error is None:
            self._failed(error)

    def _is_aligned(self) -> bool:
        if self._not_aligned is not None:
            raise self._not_aligned
        return self._aligned


class _Child:
    """The process of some consumers."""

    def __init__(
        self,
        program: Sequence[str],
        request: bytes,
        memory_limit_bytes: int,
        settings: ConsumerSettings,
        monotonic: Callable[[], float],
    ) -> None:
        self.consumers: list[IsolatedConsumer] = []
        self._stale_after_s = settings.stale_after_s
        self._process = WorkerProcess(
            program, request, _decode, kill_silent_after_s=settings.kill_silent_after_s
        )
        self._limit_bytes = memory_limit_bytes
        self._monotonic = monotonic
        self._heard_s = 0.0
        self._silent = True
        self._changed: Reconfiguration | None = None

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid

    def silent_s(self) -> float:
        """For how long it runs and has not reported, in seconds."""
        return 0.0 if self.pid is None else self._monotonic() - self._heard_s

    @property
    def is_stale(self) -> bool:
        """Whether what it has reported is not of now."""
        return self.silent_s() > self._stale_after_s

    def reconfigure(
        self, settings: ConsumerSettings, source: Mapping[str, Any] | None, where: str
    ) -> None:
        """Tell it what has changed, now and whenever it is started again."""
        before = self._changed
        if source is None and before is not None:
            source, where = before.source, before.where
        changed = Reconfiguration(
            settings=settings, source=None if source is None else dict(source), where=where
        )
        # All consumers of the process are told at once.
        if changed != before:
            self._changed = changed
            self._process.tell(changed)

    async def run(self) -> str:
        """Run it until it ends, and return how it has ended."""
        self._silent, self._heard_s = True, self._monotonic()
        over: list[int] = []
        watching = asyncio.create_task(self._watch_memory(over))
        try:
            how = how_ended(await self._process.run(self._heard, lambda: self._changed))
        except (OSError, msgspec.MsgspecError) as error:
            # It could not be started, for want of memory or descriptors, or its pipe is garbled.
            return f"with {type(error).__name__}: {error}"
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        if over:
            return f"{how}: it took {over[0]:,} bytes, over its memory limit"
        silent_s = self._monotonic() - self._heard_s
        silent = silent_s > self._stale_after_s
        return f"{how}: it had not reported for {silent_s:.0f} s" if silent else how

    def _heard(self, report: ConsumersReport) -> None:
        self._heard_s = self._monotonic()
        if report.failure is not None:
            for one in self.consumers:
                one.fail(report.failure.error())
            return
        if self._silent:
            self._silent = False
            self.consumers[0].tell_started(self.pid)
        for one in self.consumers:
            one.hear(report)

    async def _watch_memory(self, over: list[int]) -> None:
        """Kill it where it takes more memory than it may; `over` is how much it took."""
        while self._limit_bytes:
            await asyncio.sleep(_WATCH_EVERY_S)
            with suppress(OSError, ValueError, IndexError):
                pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
                if (taken := pages * resource.getpagesize()) > self._limit_bytes:
                    over.append(taken)
                    self._process.kill()
                    return
