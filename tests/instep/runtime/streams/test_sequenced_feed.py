"""The feed of numbered messages by itself: what is answered, handed over, and realigned."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from instep import Phase, Position
from instep.errors import UnreachableError
from instep.model import RecordChunk, Unreadable
from instep.ports import Receipt, ReceiptOutcome
from instep.runtime.streams.sequenced_feed import (
    NumberedRecords,
    SequencedFeed,
    SequencedFeedSettings,
)
from instep.sequencing import Refusal
from tests.instep.runtime.streams.numbered_entities_kit import (
    Content,
    Notification,
    Statement,
    message,
)

pytestmark = pytest.mark.asyncio

QUICK = SequencedFeedSettings(reorder_window_s=0.02)
PATIENT = SequencedFeedSettings(reorder_window_s=60)
AHEAD = SequencedFeedSettings(reorder_window_s=60, apply_ahead=True)


def state(version: int, key: str = "a", value: str = "x") -> Content:
    return Content(1, version, (Statement(key, value, version),))


class Driver:
    """Plays the parts of the adapter and the runtime."""

    def __init__(self, settings: SequencedFeedSettings) -> None:
        self.feed = SequencedFeed("s", settings)
        self.tasks: list[asyncio.Task[Receipt]] = []

    def baseline(self, version: int | None = None) -> None:
        if version is not None:
            self.feed.baseline_version(version)
        self.feed.committed(Position(phase=Phase.BASELINING))
        self.feed.committed(Position(phase=Phase.ALIGNING))

    async def give(self, number: int, content: Content | None = None) -> asyncio.Task[Receipt]:
        """Let a message arrive; its sender waits for the answer."""
        made = message(self.feed, Notification(number, content or state(number)))
        return await self.give_message(made)

    async def give_message(self, made: NumberedRecords) -> asyncio.Task[Receipt]:
        task = asyncio.create_task(self.feed.accept(made))
        self.tasks.append(task)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return task

    async def receive(self) -> RecordChunk:
        async with asyncio.timeout(5):
            return await self.feed.receive()

    async def silent(self) -> bool:
        try:
            async with asyncio.timeout(0.05):
                await self.feed.receive()
        except TimeoutError:
            return True
        return False

    def commit(self, number: int) -> None:
        self.feed.committed(Position(phase=Phase.ALIGNED, offsets={"s": number}))


@pytest_asyncio.fixture
async def quick() -> AsyncIterator[Driver]:
    driver = Driver(QUICK)
    yield driver
    driver.feed.close()
    await asyncio.gather(*driver.tasks)


@pytest_asyncio.fixture
async def patient() -> AsyncIterator[Driver]:
    driver = Driver(PATIENT)
    yield driver
    driver.feed.close()
    await asyncio.gather(*driver.tasks)


@pytest_asyncio.fixture
async def ahead() -> AsyncIterator[Driver]:
    driver = Driver(AHEAD)
    yield driver
    driver.feed.close()
    await asyncio.gather(*driver.tasks)


def tokens(chunk: RecordChunk) -> list[str]:
    return [f"{record.token} {record.key}" for record in chunk.records]


def offsets(chunk: RecordChunk) -> list[int]:
    return [record.offset for record in chunk.records]


async def test_r0801_a_message_is_confirmed_when_it_is_durable(patient: Driver) -> None:
    patient.baseline()
    first, second = await patient.give(1), await patient.give(2)
    assert offsets(await patient.receive()) == [1, 2]
    assert not first.done()
    patient.commit(1)
    assert (await first).outcome is ReceiptOutcome.ACCEPTED
    assert not second.done()
    patient.commit(2)
    assert (await second).outcome is ReceiptOutcome.ACCEPTED


async def test_nothing_is_handed_over_before_the_baseline_is_durable(patient: Driver) -> None:
    answer = await patient.give(1)
    assert await patient.silent()
    patient.feed.committed(Position(phase=Phase.BASELINING))
    assert await patient.silent()
    patient.baseline()
    assert offsets(await patient.receive()) == [1]
    assert not answer.done()


async def test_what_the_baseline_contains_is_confirmed_and_not_applied(patient: Driver) -> None:
    answers = [await patient.give(n) for n in (1, 2, 3)]
    patient.feed.baseline_version(2)
    assert not any(answer.done() for answer in answers)
    patient.baseline()
    assert offsets(await patient.receive()) == [3]
    outcomes = [(await answer).outcome for answer in answers[:2]]
    assert outcomes == [ReceiptOutcome.ACCEPTED, ReceiptOutcome.ACCEPTED]
    assert not answers[2].done()


async def test_of_several_baselines_the_lowest_version_counts(patient: Driver) -> None:
    for n in (1, 2, 3):
        await patient.give(n)
    patient.feed.baseline_version(3)
    patient.baseline(1)
    patient.feed.baseline_version(0)
    assert offsets(await patient.receive()) == [2, 3]


async def test_messages_in_another_order_are_handed_over_in_theirs(patient: Driver) -> None:
    patient.baseline()
    for n in (2, 3, 1):
        await patient.give(n)
    assert offsets(await patient.receive()) == [1, 2, 3]


@pytest.mark.parametrize("numbers", [(5,), (1, 3), (5_000_000,)])
async def test_r0800_r0801_a_number_that_stays_missing_realigns(
    quick: Driver, numbers: tuple[int, ...]
) -> None:
    quick.baseline()
    for n in numbers:
        await quick.give(n)
    chunk = await quick.receive()
    if numbers[0] == 1:
        assert offsets(chunk) == [1]
        chunk = chunk if chunk.realign else await quick.receive()
    assert "did not come" in chunk.realign
    assert not chunk.deviations
    assert (await quick.give(numbers[-1] + 1)).done()


async def test_what_closes_a_gap_in_time_ends_it(patient: Driver) -> None:
    patient.baseline()
    await patient.give(1)
    await patient.give(3)
    assert offsets(await patient.receive()) == [1]
    assert await patient.silent()
    await patient.give(2)
    chunk = await patient.receive()
    assert offsets(chunk) == [2, 3]
    assert not chunk.realign


async def test_what_was_in_order_goes_before_the_realignment(quick: Driver) -> None:
    one = await quick.give(1)
    await quick.give(3)
    await asyncio.sleep(0.05)
    quick.baseline()
    chunk = await quick.receive()
    assert offsets(chunk) == [1]
    assert chunk.realign == "message 2 of the session did not come"
    quick.commit(1)
    assert (await one).outcome is ReceiptOutcome.ACCEPTED
    assert await quick.silent()


async def test_a_peer_that_waits_for_each_receipt_can_close_a_gap(ahead: Driver) -> None:
    ahead.baseline()
    await ahead.give(1)
    assert tokens(await ahead.receive()) == ["s/1 a"]
    ahead.commit(1)
    later = await ahead.give(3)
    assert tokens(await ahead.receive()) == ["s/3 a"]
    assert not later.done()
    ahead.commit(2)
    assert (await later).outcome is ReceiptOutcome.ACCEPTED
    both = Content(1, 2, (Statement("a", "old", 2), Statement("b", "new", 2)))
    missing = await ahead.give(2, both)
    following = await ahead.give(4)
    chunk = await ahead.receive()
    assert tokens(chunk) == ["s/2 b", "s/4 a"]
    assert offsets(chunk) == [3, 4]
    ahead.commit(3)
    assert (await missing).outcome is ReceiptOutcome.ACCEPTED
    assert not following.done()
    ahead.commit(4)
    assert (await following).outcome is ReceiptOutcome.ACCEPTED


async def test_of_each_entity_the_highest_number_counts_in_any_order(ahead: Driver) -> None:
    ahead.baseline()
    for number, key in ((4, "a"), (3, "b"), (5, "b"), (1, "a"), (2, "b"), (6, "a")):
        await ahead.give(number, state(number, key))
    assert tokens(await ahead.receive()) == ["s/4 a", "s/3 b", "s/5 b", "s/6 a"]


async def test_a_copy_of_what_was_applied_ahead_is_a_copy(ahead: Driver) -> None:
    ahead.baseline()
    await ahead.give(2)
    await ahead.receive()
    assert not (copy := await ahead.give(2)).done()
    ahead.commit(1)
    assert (await copy).outcome is ReceiptOutcome.DUPLICATE
    again = await ahead.give(2)
    assert (await again).outcome is ReceiptOutcome.DUPLICATE
    assert await ahead.silent()


async def test_a_gap_that_stays_open_realigns_though_all_behind_it_is_applied() -> None:
    driver = Driver(SequencedFeedSettings(reorder_window_s=0.02, apply_ahead=True))
    driver.baseline()
    await driver.give(2)
    assert tokens(await driver.receive()) == ["s/2 a"]
    assert "message 1" in (await driver.receive()).realign
    driver.feed.close()
    await asyncio.gather(*driver.tasks)


@pytest_asyncio.fixture
async def early() -> AsyncIterator[Driver]:
    driver = Driver(
        SequencedFeedSettings(
            reorder_window_s=60, chunk_records=1, answer_within_s=60, confirm_while_baselining=True
        )
    )
    yield driver
    driver.feed.close()
    await asyncio.gather(*driver.tasks)


async def test_a_provider_that_shows_no_state_before_its_answer_gets_it(early: Driver) -> None:
    first = await early.give(1)
    assert not first.done()
    early.feed.committed(Position(phase=Phase.BASELINING))
    assert (await first).outcome is ReceiptOutcome.ACCEPTED
    assert (await (await early.give(1))).outcome is ReceiptOutcome.DUPLICATE
    assert (await (await early.give(2))).outcome is ReceiptOutcome.ACCEPTED
    early.feed.baseline_version(0)
    early.feed.committed(Position(phase=Phase.ALIGNING))
    later = await early.give(3)
    assert offsets(await early.receive()) == [1, 2]
    assert offsets(await early.receive()) == [3]
    early.commit(2)
    await asyncio.sleep(0)
    assert not later.done()
    early.commit(3)
    assert (await later).outcome is ReceiptOutcome.ACCEPTED


async def test_r0800_the_first_message_shows_that_the_peer_follows_the_session(
    early: Driver,
) -> None:
    begun = asyncio.create_task(early.feed.first_message())
    await asyncio.sleep(0)
    assert not begun.done()
    first = await early.give(1)
    await begun
    # The store may still say that the session before is aligned.
    assert not first.done()
    early.feed.committed(Position(phase=Phase.BASELINING))
    assert (await first).outcome is ReceiptOutcome.ACCEPTED


async def test_only_what_its_settings_confirm_early_is(patient: Driver) -> None:
    waiting = await patient.give(1)
    patient.feed.committed(Position(phase=Phase.BASELINING))
    assert not waiting.done()


async def test_what_is_behind_a_gap_is_not_confirmed_before_the_gap_is_closed(
    early: Driver,
) -> None:
    early.feed.committed(Position(phase=Phase.BASELINING))
    behind = await early.give(2)
    assert not behind.done()
    missing = await early.give(1)
    outcomes = {(await missing).outcome, (await behind).outcome}
    assert outcomes == {ReceiptOutcome.ACCEPTED}


async def test_nothing_is_confirmed_early_of_a_session_that_is_over(early: Driver) -> None:
    waiting = await early.give(1)
    early.feed.realign("it has begun anew")
    early.feed.committed(Position(phase=Phase.BASELINING))
    await asyncio.sleep(0)
    assert not waiting.done()


async def test_an_adapter_asks_for_a_realignment(patient: Driver) -> None:
    patient.baseline()
    await patient.give(1)
    patient.feed.realign("it has begun anew", deviation="begun-anew")
    chunk = await patient.receive()
    assert (offsets(chunk), chunk.realign) == ([1], "it has begun anew")
    assert chunk.deviations == {"begun-anew": 1}
    refused = await (await patient.give(2))
    assert refused.refusal is Refusal.CLOSED


async def test_a_repeat_of_the_last_message_is_answered_and_not_applied(patient: Driver) -> None:
    patient.baseline()
    first = await patient.give(1)
    await patient.receive()
    copy = await patient.give(1)
    assert not copy.done()
    patient.commit(1)
    assert (await first).outcome is ReceiptOutcome.ACCEPTED
    assert (await copy).outcome is ReceiptOutcome.DUPLICATE
    assert (await (await patient.give(1))).outcome is ReceiptOutcome.DUPLICATE
    assert await patient.silent()


async def test_a_copy_of_what_waits_behind_a_gap_is_answered_with_it(patient: Driver) -> None:
    patient.baseline()
    first, copy = await patient.give(2), await patient.give(2)
    await patient.give(1)
    assert offsets(await patient.receive()) == [1, 2]
    patient.commit(2)
    assert (await first).outcome is ReceiptOutcome.ACCEPTED
    assert (await copy).outcome is ReceiptOutcome.DUPLICATE


async def test_numbers_that_go_back_realign(patient: Driver) -> None:
    patient.baseline()
    for n in (1, 2, 3):
        await patient.give(n)
    assert (await (await patient.give(1))).refusal is Refusal.CLOSED
    chunk = await patient.receive()
    assert offsets(chunk) == [1, 2, 3]
    assert chunk.realign == "the numbers went back, 3 to 1"
    assert chunk.deviations == {"number-backwards": 1}


async def test_r0802_other_content_under_the_last_number_realigns(patient: Driver) -> None:
    patient.baseline()
    await patient.give(1)
    assert (await (await patient.give(1, state(2)))).refusal is Refusal.CLOSED
    chunk = await patient.receive()
    assert chunk.realign == "message 1 has other content now"
    assert chunk.deviations == {"content-changed": 1}


@pytest.mark.parametrize("durable", [True, False])
async def test_r0802_other_content_after_our_fault_is_applied_over_the_first(durable: bool) -> None:
    driver = Driver(SequencedFeedSettings(answer_within_s=0.1))
    driver.baseline()
    assert (await (await driver.give(1))).refusal is Refusal.FULL
    assert offsets(await driver.receive()) == [1]
    if durable:
        driver.commit(1)
    again = await driver.give(1, state(2, value="new"))
    chunk = await driver.receive()
    (record,) = chunk.decode().records
    # It has a place of its own, as the first did: that one is no reason to leave it out.
    assert (record.offset, b"new" in record.body, chunk.realign) == (2, True, "")
    assert record.token != "s/1"
    assert not again.done()
    following = await driver.give(2)
    assert offsets(await driver.receive()) == [3]
    driver.commit(3)
    assert (await again).outcome is ReceiptOutcome.DUPLICATE
    assert (await following).outcome is ReceiptOutcome.ACCEPTED
    driver.feed.close()


async def test_r0802_after_the_confirmation_other_content_is_a_deviation_again() -> None:
    driver = Driver(SequencedFeedSettings(answer_within_s=0.1))
    driver.baseline()
    assert (await (await driver.give(1))).refusal is Refusal.FULL
    again = await driver.give(1, state(2, value="new"))
    await driver.receive()
    driver.commit(1)
    await again
    copy = await driver.give(1, state(2, value="new"))
    assert (await copy).outcome is ReceiptOutcome.DUPLICATE
    assert (await (await driver.give(1, state(3, value="newer")))).refusal is Refusal.CLOSED
    chunk = await driver.receive()
    assert chunk.deviations == {"content-changed": 1}


async def test_a_repeat_of_what_our_fault_was_about_does_not_go_back() -> None:
    """A peer with several messages under way: 2 has come when it learns of the fault for 1."""
    driver = Driver(SequencedFeedSettings(answer_within_s=0.1))
    driver.baseline()
    first = await driver.give(1)
    second = await driver.give(2)
    assert (await first).refusal is Refusal.FULL
    assert (await second).refusal is Refusal.FULL
    assert offsets(await driver.receive()) == [1, 2]
    driver.commit(2)
    for number in (1, 2):
        assert (await (await driver.give(number))).outcome is ReceiptOutcome.DUPLICATE
    assert await driver.silent()


async def test_a_copy_of_what_is_durable_needs_no_room() -> None:
    """A fault for it would allow other content under a number that is confirmed (R0802)."""
    driver = Driver(SequencedFeedSettings(limit_messages=1))
    driver.baseline()
    first = await driver.give(1)
    await driver.receive()
    driver.commit(1)
    await first
    await driver.give(3)
    assert (await (await driver.give(1))).outcome is ReceiptOutcome.DUPLICATE
    assert (await (await driver.give(4))).refusal is Refusal.FULL
    driver.feed.close()


async def test_a_fault_for_what_was_not_read_may_be_for_a_copy_of_the_last() -> None:
    driver = Driver(SequencedFeedSettings())
    driver.baseline()
    first = await driver.give(1)
    await driver.receive()
    driver.commit(1)
    await first
    driver.feed.refused_unread()
    again = await driver.give(1, state(2, value="new"))
    assert offsets(await driver.receive()) == [2]
    driver.commit(2)
    assert (await again).outcome is ReceiptOutcome.DUPLICATE
    driver.feed.close()


async def test_many_contents_under_one_number_cost_no_realignment() -> None:
    driver = Driver(SequencedFeedSettings(answer_within_s=0.001))
    for version in range(1, 101):
        assert (await (await driver.give(1, state(version, value=f"v{version}-")))).refusal
    driver.baseline()
    chunk = await driver.receive()
    (record,) = chunk.decode().records
    assert (b"v100-" in record.body, chunk.realign) == (True, "")
    driver.feed.close()


async def test_s7_other_content_after_our_fault_counts_while_it_is_not_applied() -> None:
    driver = Driver(SequencedFeedSettings(answer_within_s=0.1))
    assert (await (await driver.give(1, state(1, value="old")))).refusal is Refusal.FULL
    again = await driver.give(1, state(2, value="new"))
    copy = await driver.give(1, state(2, value="new"))
    # One that was held up on its way no longer counts.
    await driver.give(1, state(1, value="old"))
    driver.baseline()
    chunk = await driver.receive()
    assert [b"new" in record.body for record in chunk.decode().records] == [True]
    driver.commit(1)
    assert (await again).outcome is (await copy).outcome is ReceiptOutcome.DUPLICATE
    late = await driver.give(1, state(2, value="new"))
    assert (await late).outcome is ReceiptOutcome.DUPLICATE
    driver.feed.close()


async def test_a_copy_after_an_answer_that_took_too_long_gets_the_receipt() -> None:
    driver = Driver(SequencedFeedSettings(answer_within_s=0.02))
    driver.baseline()
    assert (await (await driver.give(1))).refusal is Refusal.FULL
    assert offsets(await driver.receive()) == [1]
    driver.commit(1)
    assert (await (await driver.give(1))).outcome is ReceiptOutcome.DUPLICATE


async def test_a_number_before_the_first_is_refused_and_changes_nothing(patient: Driver) -> None:
    patient.baseline()
    assert (await (await patient.give(0))).refusal is Refusal.OUT_OF_RANGE
    await patient.give(1)
    chunk = await patient.receive()
    assert offsets(chunk) == [1]
    assert not chunk.realign


async def test_a_message_that_states_nothing_is_as_durable_as_the_one_before(
    patient: Driver,
) -> None:
    patient.baseline()
    one, empty = await patient.give(1), await patient.give(2, Content(1, 2, ()))
    assert offsets(await patient.receive()) == [1]
    assert not empty.done()
    patient.commit(1)
    assert (await one).outcome is (await empty).outcome is ReceiptOutcome.ACCEPTED
    alone = await patient.give(3, Content(1, 2, ()))
    assert await patient.silent()
    assert (await alone).outcome is ReceiptOutcome.ACCEPTED


async def test_a11_parts_that_cannot_be_read_go_to_quarantine(patient: Driver) -> None:
    patient.baseline()
    made = message(patient.feed, Notification(1, state(1)))
    made.unreadable = [Unreadable("numbered", b"<", "no XML")]
    answer = await patient.give_message(made)
    chunk = await patient.receive()
    assert (offsets(chunk), list(chunk.unreadable)) == ([1], made.unreadable)
    patient.commit(1)
    assert (await answer).outcome is ReceiptOutcome.ACCEPTED


async def test_what_is_not_durable_is_bounded_by_messages() -> None:
    driver = Driver(SequencedFeedSettings(limit_messages=4, reorder_window_s=60))
    driver.baseline()
    for n in (2, 3):
        await driver.give(n)
    # Half of the room is for what closes the gap.
    assert (await (await driver.give(4))).refusal is Refusal.FULL
    for n in (1, 4):
        await driver.give(n)
    assert (await (await driver.give(5))).refusal is Refusal.FULL
    assert offsets(await driver.receive()) == [1, 2, 3, 4]
    driver.commit(4)
    assert not (await driver.give(5)).done()
    driver.feed.close()


async def test_what_is_not_durable_is_bounded_by_bytes() -> None:
    driver = Driver(SequencedFeedSettings(limit_bytes=100))
    driver.baseline()
    assert not (await driver.give(1, state(1, value="x" * 50))).done()
    assert (await (await driver.give(2, state(2, value="x" * 50)))).refusal is Refusal.FULL
    driver.feed.close()


async def test_a_chunk_has_a_bound() -> None:
    driver = Driver(SequencedFeedSettings(chunk_records=2))
    driver.baseline()
    for n in (1, 2, 3):
        await driver.give(n)
    assert offsets(await driver.receive()) == [1, 2]
    assert offsets(await driver.receive()) == [3]
    driver.feed.close()


async def test_a_lost_connection_is_raised_after_what_was_in_order(patient: Driver) -> None:
    patient.baseline()
    await patient.give(1)
    patient.feed.fail(UnreachableError("reset"))
    assert (await (await patient.give(2))).refusal is Refusal.CLOSED
    assert offsets(await patient.receive()) == [1]
    with pytest.raises(UnreachableError, match="reset"):
        await patient.receive()


async def test_a_lost_connection_does_not_wait_for_a_baseline(patient: Driver) -> None:
    await patient.give(1)
    patient.feed.fail(UnreachableError("reset"))
    with pytest.raises(UnreachableError):
        await patient.receive()


async def test_the_end_of_the_session_answers_all_who_wait(patient: Driver) -> None:
    patient.baseline()
    waiting = [await patient.give(n) for n in (1, 3)]
    await patient.receive()
    patient.feed.close()
    assert [(await one).refusal for one in waiting] == [Refusal.CLOSED, Refusal.CLOSED]
    patient.commit(1)


async def test_a_cancelled_receive_loses_nothing(patient: Driver) -> None:
    patient.baseline()
    receiving = asyncio.create_task(patient.feed.receive())
    await asyncio.sleep(0)
    await patient.give(1)
    receiving.cancel()
    (outcome,) = await asyncio.gather(receiving, return_exceptions=True)
    chunk = outcome if isinstance(outcome, RecordChunk) else await patient.receive()
    assert offsets(chunk) == [1]


async def test_a_sender_that_goes_away_leaves_its_message(patient: Driver) -> None:
    patient.baseline()
    gone = await patient.give(1)
    patient.tasks.clear()
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    copy = await patient.give(1)
    assert offsets(await patient.receive()) == [1]
    patient.commit(1)
    assert (await copy).outcome is ReceiptOutcome.DUPLICATE


async def test_records_of_another_place_are_a_mistake_that_is_named(patient: Driver) -> None:
    other = SequencedFeed("other", PATIENT)
    with pytest.raises(ValueError, match="partition 'other'"):
        await patient.feed.accept(message(other, Notification(1, state(1))))
    wrong = message(patient.feed, Notification(2, state(1)))
    wrong.number = 1
    with pytest.raises(ValueError, match="offset 2"):
        await patient.feed.accept(wrong)


async def test_append_times_never_go_back_within_a_session() -> None:
    times = iter((10.0, 11.0, 5.0))
    feed = SequencedFeed("s", PATIENT, clock=lambda: next(times))
    assert feed.opened_at_us == 10_000_000
    assert [feed.stamp_us(), feed.stamp_us()] == [11_000_000, 11_000_000]
