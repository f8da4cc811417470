"""Carries what sequences ask for to the listener, beside the commits: bounded, some at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from instep.errors import InstepError
from instep.ports.listener import Listener
from instep.runtime.settings import IntakeSettings
from instep.sequencing.effects import (
    AskResend,
    RealignSequence,
    ReportFault,
    ReportLoss,
    SequenceEffect,
    SequenceEnded,
    SequenceFailed,
)

__all__ = ["EffectDispatcher", "describe"]


class EffectDispatcher:
    """A bounded queue of effects, and the tasks that carry them out.

    An effect that fails is told and left: a sequence that still needs it asks again, for its gap is
    still due. So is one that finds no room.
    """

    def __init__(
        self,
        listener: Listener,
        limits: IntakeSettings,
        emit: Callable[[str, str, str], None],
    ) -> None:
        self._listener = listener
        self._limits = limits
        self._emit = emit
        self._waiting: deque[tuple[str, SequenceEffect]] = deque()
        self._room = asyncio.Semaphore(limits.effects_at_once)
        self._has_work = asyncio.Event()

    def put(self, effects: Iterable[tuple[str, SequenceEffect]]) -> None:
        """Tell what happened, and carry it out soon."""
        for scope, effect in effects:
            kind, text = describe(effect)
            self._emit(scope, kind, text)
            if len(self._waiting) < self._limits.effects_waiting:
                self._waiting.append((scope, effect))
                self._has_work.set()
            else:
                self._emit(scope, "not-sent", f"too many requests to the peers wait: {text}")

    async def run(self) -> None:
        """Carry out until cancelled. Raises what is no `InstepError`."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._has_work.wait()
                while self._waiting:
                    await self._room.acquire()
                    scope, effect = self._waiting.popleft()
                    tasks.create_task(self._carry_out(scope, effect))
                self._has_work.clear()

    async def _carry_out(self, scope: str, effect: SequenceEffect) -> None:
        try:
            await self._listener.carry_out(scope, effect)
        except InstepError as error:
            self._emit(scope, "not-sent", str(error))
        finally:
            self._room.release()


def describe(effect: SequenceEffect) -> tuple[str, str]:
    """Kind and text of an effect, for the events of the consumer."""
    match effect:
        case AskResend():
            return "asked", f"asked for {_text(effect.missing)} again"
        case RealignSequence():
            return "realign", f"{_text(effect.missing)} must be obtained by other means"
        case ReportLoss():
            return "loss", f"{_text(effect.lost)} lost: {effect.reason}"
        case ReportFault():
            return "fault", f"{_text(effect.faulted)} will not be delivered: {effect.reason}"
        case SequenceFailed():
            return "sequence-failed", effect.reason
        case SequenceEnded():
            return "sequence-ended", f"the sequence is {effect.reason}"


def _text(pairs: list[tuple[int, int]]) -> str:
    shown = [str(low) if low == high else f"{low}-{high}" for low, high in pairs[:20]]
    return ",".join(shown) + ("…" if len(pairs) > 20 else "")
