"""The intake over a store whose commits are in the hand of the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import pytest

from instep import FencedError, InstepError, Message, SinkError, StoreUnavailableError
from instep.ports import EnvelopeReceipt, Receipt, ReceiptOutcome
from instep.ports.message_store import (
    DueSequences,
    MessageGroup,
    MessageStore,
    Obligation,
    OperatorRequest,
    SenderUsage,
    StoredSequence,
)
from instep.runtime.messages.intake import MessageIntake
from instep.runtime.retry import Environment
from instep.sequencing import Cancel, Refusal, SequenceRefusedError, SequencerState
from tests.instep.runtime.messages.intake_kit import (
    ACCEPTED,
    DUPLICATE,
    SCOPE,
    Speaker,
    message,
    outcomes,
    quick,
    receive_together,
)

pytestmark = pytest.mark.asyncio

FULL = "full"


class Store:
    """Keeps states; a commit waits for `go`, then fails with what is in `errors`."""

    def __init__(self) -> None:
        self.states: dict[str, SequencerState] = {}
        self.numbers: list[int] = []
        self.begun: list[MessageGroup] = []
        self.go = asyncio.Event()
        self.go.set()
        self.errors: list[InstepError] = []
        self.durable_despite = False
        """Whether a commit that fails is durable all the same."""

    async def load(self, scopes: Collection[str]) -> dict[str, StoredSequence]:
        return {name: StoredSequence(self.states[name]) for name in scopes if name in self.states}

    async def find_seen(self, _messages: Sequence[Message]) -> set[tuple[str, str]]:
        return set()

    async def find_due(self, _now_us: int, _limit: int) -> DueSequences:
        return DueSequences([], None)

    async def usage(self) -> dict[str, SenderUsage]:
        return {}

    async def obligations(self) -> list[Obligation]:
        return []

    async def operator_requests(self) -> list[OperatorRequest]:
        return []

    async def digests(self, _numbers: object) -> dict[tuple[str, int], bytes]:
        return {}

    async def commit(self, group: MessageGroup) -> None:
        self.begun.append(group)
        await self.go.wait()
        error = self.errors.pop(0) if self.errors else None
        if error is None or self.durable_despite:
            for change in group.changes:
                self.states[change.scope] = change.state
                self.numbers += [said.number for _, said in change.release]
        if error is not None:
            raise error


class Received:
    """A running intake, and what it answered."""

    def __init__(self, intake: MessageIntake, store: Store) -> None:
        self.intake, self.store = intake, store
        self.answers: list[Receipt | InstepError] = []
        self.task: asyncio.Task[None] | None = None

    def submit(self, *numbers: int, scope: str = SCOPE, **changes: Any) -> None:
        for number in numbers:
            self.intake.submit(message(number, scope, **changes), self.answers.append)

    @property
    def told(self) -> list[str]:
        return outcomes([one for one in self.answers if isinstance(one, Receipt)])

    async def until(self, answers: int) -> None:
        async with asyncio.timeout(10):
            while len(self.answers) < answers:
                await asyncio.sleep(0.001)

    async def begun(self, commits: int) -> None:
        async with asyncio.timeout(10):
            while len(self.store.begun) < commits:
                await asyncio.sleep(0.001)


@asynccontextmanager
async def receiving(**limits: Any) -> AsyncIterator[Received]:
    store = Store()
    intake = MessageIntake(
        Speaker(),
        cast(MessageStore, store),
        quick(**limits),
        Environment(),
        handled=False,
        emit=lambda *_: None,
    )
    received = Received(intake, store)
    received.task = asyncio.create_task(intake.run())
    try:
        yield received
    finally:
        received.task.cancel()
        with suppress(asyncio.CancelledError, ExceptionGroup):
            await received.task


async def test_nothing_is_answered_before_its_commit() -> None:
    """S3: the answer claims what is durable."""
    async with receiving() as at:
        at.store.go.clear()
        at.submit(1)
        await at.begun(1)
        at.submit(2, 3)
        await asyncio.sleep(0.02)
        assert at.answers == []
        at.store.go.set()
        await at.until(3)
        assert at.told == [ACCEPTED] * 3
        # What came while the first commit ran is the second one.
        assert [len(group.changes[0].release) for group in at.store.begun] == [1, 2]


async def test_senders_are_told_while_the_next_group_is_committed() -> None:
    async with receiving() as at:
        at.store.go.clear()
        at.submit(1)
        await at.begun(1)
        at.submit(2)
        at.store.go.set()
        at.store.go = asyncio.Event()
        await at.until(1)
        assert len(at.store.begun) == 2
        assert at.told == [ACCEPTED]


async def test_a_hundred_senders_do_not_wait_for_each_other() -> None:
    async with receiving() as at:
        for number in (1, 2):
            for sender in range(100):
                at.submit(number, scope=f"s{sender}")
        await at.until(200)
        assert at.told == [ACCEPTED] * 200
        assert len(at.store.begun) == 1


async def test_a_commit_that_takes_too_long_is_refused_and_may_be_durable() -> None:
    async with receiving(answer_within_s=0.05) as at:
        at.store.go.clear()
        at.submit(1)
        waiting = asyncio.create_task(receive_together(at.intake, [message(2), message(3)]))
        await at.until(1)
        assert at.told == [FULL]
        assert outcomes(await waiting) == [FULL, FULL]
        assert at.intake.refusals == {"full": 3}
        at.store.go.set()
        at.submit(1)
        await at.until(2)
        assert at.told == [FULL, DUPLICATE]
        assert at.intake.counts[ReceiptOutcome.ACCEPTED] == 0


@pytest.mark.parametrize("limits", [{"queue_messages": 2}, {"queue_bytes": 200}])
async def test_the_queue_is_bounded(limits: dict[str, int]) -> None:
    async with receiving(**limits) as at:
        at.store.go.clear()
        at.submit(1)
        await at.begun(1)
        at.submit(2, 3, 4, body=b"x" * 100)
        assert at.told == [FULL]
        at.store.go.set()
        await at.until(4)
        assert at.told == [FULL, ACCEPTED, ACCEPTED, ACCEPTED]


@pytest.mark.parametrize("durable_despite", [False, True])
async def test_a_group_is_done_again_while_the_store_is_away(durable_despite: bool) -> None:
    async with receiving() as at:
        at.store.errors = [StoreUnavailableError("away"), StoreUnavailableError("away")]
        at.store.durable_despite = durable_despite
        at.submit(1, 2)
        await at.until(2)
        assert at.told == [DUPLICATE if durable_despite else ACCEPTED] * 2
        assert at.store.numbers == [1, 2]
        assert at.intake.last_error == ""


async def test_while_the_store_is_away_a_refusal_says_so() -> None:
    async with receiving(answer_within_s=0.4, queue_messages=3) as at:
        at.store.errors = [StoreUnavailableError("away") for _ in range(1_000)]
        at.submit(1)
        waiting = asyncio.create_task(at.intake.receive(message(2)))
        await at.until(1)
        assert at.told == ["unavailable"]
        assert outcomes([await waiting]) == ["unavailable"]
        enveloped = later()
        at.intake.submit_envelope(SCOPE, [message(3)], enveloped.set_result)
        assert refusal_of(await enveloped) is Refusal.UNAVAILABLE
        with pytest.raises(SequenceRefusedError, match="the store is unavailable"):
            await at.intake.count(SCOPE, 9)
        assert set(at.intake.refusals) == {"unavailable"}
        at.store.errors = []
        await at.intake.receive(message(4))
        assert at.intake.last_error == ""


async def test_an_error_that_is_fatal_reaches_all_who_wait() -> None:
    async with receiving() as at:
        at.store.go.clear()
        at.store.errors = [FencedError("another receives")]
        at.submit(1)
        await at.begun(1)
        at.submit(2)
        waiting = asyncio.create_task(at.intake.receive(message(3)))
        await asyncio.sleep(0)
        at.store.go.set()
        with pytest.raises(InstepError):
            await waiting
        assert [type(one) for one in at.answers][:1] == [FencedError]
        assert len(at.answers) == 2
        assert not any(isinstance(one, Receipt) for one in at.answers)
        assert at.task is not None
        with pytest.raises(ExceptionGroup):
            await at.task


async def test_a_caller_that_leaves_takes_nobody_with_it() -> None:
    async with receiving() as at:
        at.store.go.clear()
        at.submit(1)
        await at.begun(1)
        leaving = asyncio.create_task(at.intake.receive(message(2)))
        await asyncio.sleep(0)
        leaving.cancel()
        at.submit(3)
        at.store.go.set()
        await at.until(2)
        assert at.told == [ACCEPTED] * 2
        # It was not committed yet, so it is as if it had never come.
        assert at.store.numbers == [1]
        assert str(at.store.states[SCOPE].received) == "1,3"


def later() -> asyncio.Future[EnvelopeReceipt | InstepError]:
    return asyncio.get_running_loop().create_future()


async def test_an_envelope_is_answered_by_a_callback_after_its_commit() -> None:
    async with receiving() as at:
        at.store.go.clear()
        answer = later()
        at.intake.submit_envelope(SCOPE, [message(1), Cancel([(3, 4)])], answer.set_result)
        await at.begun(1)
        assert not answer.done()
        at.store.go.set()
        receipt = await answer
        assert isinstance(receipt, EnvelopeReceipt)
        assert outcomes(receipt.receipts) == [ACCEPTED]
        assert list(receipt.claims.acknowledged().pairs()) == [(1, 1)]
        assert list(receipt.claims.cancelled().pairs()) == [(3, 4)]


async def test_the_callback_of_an_envelope_has_what_apply_raises() -> None:
    async with receiving(queue_messages=1) as at:
        at.store.go.clear()
        at.submit(1)
        await at.begun(1)
        at.submit(2)
        full, unknown, ended = later(), later(), later()
        at.intake.submit_envelope(SCOPE, [message(3)], full.set_result)
        assert refusal_of(full.result()) is Refusal.FULL
        at.store.go.set()
        await at.until(2)
        at.intake.submit_envelope("unknown", [Cancel([(1, 1)])], unknown.set_result)
        assert refusal_of(await unknown) is Refusal.UNKNOWN
    at.intake.submit_envelope(SCOPE, [message(4)], ended.set_result)
    assert isinstance(ended.result(), SinkError)


def refusal_of(answer: EnvelopeReceipt | InstepError) -> Refusal:
    assert isinstance(answer, SequenceRefusedError)
    return answer.refusal


async def test_what_has_come_already_goes_into_the_commit_that_begins() -> None:
    async with receiving() as at:

        async def read_later(passes: int) -> None:
            for _ in range(passes):
                await asyncio.sleep(0)
            at.submit(passes)

        # Each is read one pass of the loop after the one before it.
        readers = [asyncio.create_task(read_later(n)) for n in range(1, 6)]
        await asyncio.gather(*readers)
        await at.until(5)
        assert len(at.store.begun) == 1
        assert at.store.numbers == [1, 2, 3, 4, 5]
