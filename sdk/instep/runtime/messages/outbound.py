"""Passes the effects of sequences to the listener, beside the commits: bounded, peer by peer.

An effect with an obligation in the store is tried again. Any other is tried once, because an open
gap emits its request again (S12).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable

from instep.errors import InstepError
from instep.ports.listener import Listener
from instep.ports.message_store import Obligation
from instep.runtime.retry import Environment
from instep.runtime.settings import IntakeSettings
from instep.runtime.supervision import is_cancelled
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

_log = logging.getLogger("instep.messages")


class _Work:
    """One effect on its way."""

    __slots__ = ("effect", "failures", "number", "peer", "scope")

    def __init__(self, scope: str, peer: str, effect: SequenceEffect, number: int | None) -> None:
        self.scope = scope
        self.peer = peer
        self.effect = effect
        self.number = number
        """The number of its obligation; None: it has none."""
        self.failures = 0


class EffectDispatcher:
    """Queues effects by peer, and runs the tasks that carry them out.

    At most `effects_per_peer` run for one peer and `effects_at_once` for all; peers are served
    round-robin. When more than `effects_waiting` wait, the oldest is dropped, with an event.
    """

    def __init__(
        self,
        listener: Listener,
        limits: IntakeSettings,
        environment: Environment,
        *,
        emit: Callable[[str, str, str], None],
        settled: Callable[[int, bool], None],
        asked: Callable[[str], None],
    ) -> None:
        """Args:
        listener: Carries the effects out.
        limits: How many wait, how many run at once, how often one is tried.
        environment: The randomness of the waits between two attempts.
        emit: Called with scope, kind and text of an event.
        settled: Called with the number of an obligation, and whether it was sent; else it was given
            up, or its listener has no way to send it.
        asked: Called with a scope whose request to resend was sent or has failed.
        """
        self._listener = listener
        self.limits = limits
        self._environment = environment
        self._emit = emit
        self._settled = settled
        self._asked = asked
        self._pending: OrderedDict[_Work, None] = OrderedDict()
        """All that wait for a slot or for another attempt; the oldest first."""
        self._under_way: set[_Work] = set()
        self._owed: set[int] = set()
        """Numbers of the obligations that were neither carried out nor given up."""
        self._asks: dict[str, _Work] = {}
        self._queues: OrderedDict[str, deque[_Work]] = OrderedDict()
        """Peers with work, in round-robin order: the next one first."""
        self._busy: Counter[str] = Counter()
        self.failed_sequences = 0
        """Since the start."""
        self._has_work = asyncio.Event()

    def __repr__(self) -> str:
        return f"<EffectDispatcher {len(self._pending)} wait, {len(self._under_way)} under way>"

    def put(self, scope: str, peer: str, effect: SequenceEffect, number: int | None = None) -> None:
        """Emit the event of this effect, and queue it to be carried out."""
        kind, text = describe(effect)
        self.failed_sequences += isinstance(effect, SequenceFailed)
        self._emit(scope, kind, text)
        if isinstance(effect, AskResend):
            waiting = self._asks.get(scope)
            if waiting is not None and waiting in self._pending:
                waiting.effect = effect
                return
        self._add(_Work(scope, peer, effect, number))

    def restore(self, obligations: Iterable[Obligation]) -> None:
        """Queue the obligations read from the store, except those queued already."""
        for one in obligations:
            if one.number not in self._owed:
                self._add(_Work(one.scope, one.peer, one.effect, one.number))

    def forget(self, numbers: Iterable[int]) -> None:
        """Remove obligations that the store has forgotten."""
        self._owed.difference_update(numbers)

    def is_asking(self, scope: str) -> bool:
        """Whether a request to resend of this scope still waits to be sent."""
        return scope in self._asks

    async def run(self) -> None:
        """Carry effects out until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._has_work.wait()
                self._has_work.clear()
                while (work := self._next()) is not None:
                    self._under_way.add(work)
                    tasks.create_task(self._carry_out(work))

    def _add(self, work: _Work) -> None:
        if work.number is not None:
            self._owed.add(work.number)
        if isinstance(work.effect, AskResend):
            self._asks[work.scope] = work
        self._pending[work] = None
        self._enqueue(work)
        while len(self._pending) > self.limits.effects_waiting:
            oldest, _ = self._pending.popitem(last=False)
            text = describe(oldest.effect)[1]
            self._emit(oldest.scope, "not-sent", f"too much waits for the peers: {text}")
            self._end(oldest)
            self._drop_gone(self._queues.get(oldest.peer, deque()))

    def _enqueue(self, work: _Work) -> None:
        if work in self._pending:
            self._queues.setdefault(work.peer, deque()).append(work)
            self._has_work.set()

    def _next(self) -> _Work | None:
        """Take the next effect whose peer has a slot out of its queue (S12); None: no one has."""
        if len(self._under_way) >= self.limits.effects_at_once:
            return None
        for _ in range(len(self._queues)):
            peer, queue = next(iter(self._queues.items()))
            self._queues.move_to_end(peer)
            if not self._drop_gone(queue):
                del self._queues[peer]
            elif self._busy[peer] < self.limits.effects_per_peer:
                work = queue.popleft()
                del self._pending[work]
                self._busy[peer] += 1
                return work
        return None

    def _drop_gone(self, queue: deque[_Work]) -> deque[_Work]:
        """Remove work that no longer waits from the head of a queue; returns the queue."""
        while queue and queue[0] not in self._pending:
            queue.popleft()
        return queue

    async def _carry_out(self, work: _Work) -> None:
        failed, sent = False, False
        try:
            sent = await self._listener.carry_out(work.scope, work.effect) is not False
        except InstepError as error:
            failed = True
            self._emit(work.scope, "not-sent", str(error))
        except (Exception, asyncio.CancelledError) as error:
            # What a peer states may lead to any mistake: it ends this one effect and nothing else.
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                raise
            failed = True
            _log.exception("an effect could not be carried out for a reason of our own")
            self._emit(work.scope, "not-sent", f"a mistake of our own: {type(error).__name__}")
        finally:
            self._under_way.discard(work)
            self._busy[work.peer] -= 1
            if not self._busy[work.peer]:
                del self._busy[work.peer]
            self._has_work.set()
        work.failures += failed
        if failed and work.number is not None and work.failures < self.limits.effects_attempts:
            self._pending[work] = None
            asyncio.get_running_loop().call_later(self._wait_s(work), self._enqueue, work)
        else:
            self._end(work, sent=sent)

    def _end(self, work: _Work, *, sent: bool = False) -> None:
        if work.number is not None:
            self._settled(work.number, sent)
        if self._asks.get(work.scope) is work:
            del self._asks[work.scope]
            self._asked(work.scope)

    def _wait_s(self, work: _Work) -> float:
        limits = self.limits
        longest_s = limits.effects_retry_initial_s * 2.0 ** min(work.failures - 1, 30)
        return min(limits.effects_retry_max_s, longest_s) * self._environment.rng.uniform(0.5, 1.0)


def describe(effect: SequenceEffect) -> tuple[str, str]:
    """Kind and text of an effect, for the events of the consumer."""
    match effect:
        case AskResend():
            return "ask-resend", f"asked for {_text(effect.missing)} again"
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
