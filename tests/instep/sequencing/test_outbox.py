"""Our own messages: numbered, kept until acknowledged, sent again on a reported gap."""

from __future__ import annotations

import msgspec
import pytest

from instep.model.ranges import Ranges
from instep.sequencing.outbox import (
    Outbox,
    OutboxDecision,
    OutboxFullError,
    OutboxSettings,
    OutboxState,
)
from tests.instep.sequencing.sequencer_kit import T0_US, US

ALICE, BOB = "did:ex:alice", "did:ex:bob"
AUCTIONEER = "did:ex:auctioneer"
LATER_US = T0_US + 5 * US


def outbox_with(count: int, *recipients: str, settings: OutboxSettings | None = None) -> Outbox:
    outbox = Outbox(settings)
    for number in range(1, count + 1):
        sent = outbox.append(f"id-{number}", 100, recipients or [AUCTIONEER], T0_US)
        assert (sent.number, sent.sent_count) == (number, 1)
    return outbox


def seen(last: int, *gaps: int) -> tuple[Ranges, Ranges]:
    """Return an acknowledgement of all up to `last` but the gaps; what follows has not come
    either.
    """
    missing = Ranges.of_numbers(gaps)
    missing.add_range(last + 1, 3_000)
    return Ranges.of((1, last)) - missing if last else Ranges(), missing


def unacknowledged(outbox: Outbox) -> list[int]:
    return [sent.number for sent in outbox.checkpoint().sent]


def test_alice_sends_again_what_the_auctioneer_has_not_seen() -> None:
    """`{"id": "did:ex:alice", "last": 4, "gaps": [2,3]}`: 1 and 4 are there, 2 and 3 are not."""
    outbox = outbox_with(4)
    outcome = outbox.acknowledge(AUCTIONEER, *seen(4, 2, 3), LATER_US)
    assert outcome.acknowledged == [1, 4]
    assert [(s.number, s.id, s.sent_count) for s in outcome.resend] == [
        (2, "id-2", 2),
        (3, "id-3", 2),
    ]
    assert unacknowledged(outbox) == [2, 3]


def test_bob_has_nothing_to_send_again() -> None:
    outbox = outbox_with(2)
    outcome = outbox.acknowledge(AUCTIONEER, *seen(2), LATER_US)
    assert (outcome.acknowledged, outcome.resend) == ([1, 2], [])
    assert outbox.due_us() is None


def test_a_tail_that_was_not_seen_is_missing_too() -> None:
    outbox = outbox_with(4)
    outcome = outbox.acknowledge(AUCTIONEER, *seen(2), LATER_US)
    assert [sent.number for sent in outcome.resend] == [3, 4]


def test_what_may_still_be_on_its_way_is_not_sent_again() -> None:
    outbox = outbox_with(2)
    report = seen(2, 1)
    assert not outbox.acknowledge(AUCTIONEER, *report, LATER_US - 1).resend
    assert [
        sent.sent_count for sent in outbox.acknowledge(AUCTIONEER, *report, LATER_US).resend
    ] == [2]
    assert not outbox.acknowledge(AUCTIONEER, *report, LATER_US).resend


def test_a_message_is_kept_until_every_recipient_has_it() -> None:
    outbox = outbox_with(2, ALICE, BOB)
    assert outbox.acknowledge(ALICE, *seen(2), LATER_US).acknowledged == []
    outcome = outbox.acknowledge(BOB, *seen(2, 1), LATER_US)
    assert outcome.acknowledged == [2]
    assert [(sent.number, sent.waiting_for) for sent in outcome.resend] == [(1, [BOB])]
    # Alice has acknowledged it once; an older acknowledgement of hers that comes later changes
    # nothing.
    assert not outbox.acknowledge(ALICE, *seen(0), LATER_US + 9 * US).resend
    assert not outbox.acknowledge("did:ex:carol", *seen(2), LATER_US).acknowledged


def test_silence_is_answered_by_sending_again_so_often_and_no_more() -> None:
    outbox = outbox_with(1, settings=OutboxSettings(limit_sent_count=3))
    counts = []
    while (due_us := outbox.due_us()) is not None:
        assert outbox.tick(due_us - 1) == OutboxDecision(), "something was done too early"
        outcome = outbox.tick(due_us)
        counts += [sent.sent_count for sent in outcome.resend]
        assert [sent.number for sent in outcome.given_up] == ([] if outcome.resend else [1])
    assert counts == [2, 3]
    assert unacknowledged(outbox) == []


@pytest.mark.parametrize("limits", [{"limit_messages": 2}, {"limit_bytes": 299}])
def test_a_full_outbox_refuses_and_uses_no_number(limits: dict[str, int]) -> None:
    outbox = outbox_with(2, settings=OutboxSettings(**limits))
    with pytest.raises(OutboxFullError, match="2 messages of 200 bytes are not acknowledged"):
        outbox.append("id-3", 100, [AUCTIONEER], T0_US)
    outbox.acknowledge(AUCTIONEER, *seen(1), T0_US)
    assert outbox.append("id-3", 100, [AUCTIONEER], T0_US).number == 3


def test_numbers_and_counts_survive_a_crash_and_a_failed_commit() -> None:
    outbox = outbox_with(2)
    outbox.tick(LATER_US)
    state = outbox.checkpoint()
    outbox.committed(msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=OutboxState))
    outbox.append("id-3", 100, [AUCTIONEER], LATER_US)
    outbox.roll_back()
    for restored in (outbox, Outbox(None, outbox.durable)):
        assert restored.checkpoint() == state
        assert restored.append("another", 100, [AUCTIONEER], LATER_US).number == 3
        assert [s.sent_count for s in restored.tick(LATER_US + 5 * US).resend] == [3, 3, 2]


def test_a_message_to_nobody_has_a_number_and_is_not_kept() -> None:
    outbox = Outbox()
    assert outbox.append("id-1", 100, [], T0_US).number == 1
    assert unacknowledged(outbox) == []


def test_who_is_away_costs_the_others_nothing_and_nothing_is_counted_for_them() -> None:
    """S12: one peer holds up no other."""
    outbox = outbox_with(1, ALICE, BOB, settings=OutboxSettings(limit_sent_count=3))
    now_us = T0_US
    for count in (2, 3):
        now_us += 5 * US
        (again,) = outbox.tick(now_us, {BOB}).resend
        assert (again.waiting_for, again.sent_count_to(ALICE)) == ([ALICE], count)
    now_us += 5 * US
    outcome = outbox.tick(now_us, {BOB})
    assert [lost.waiting_for for lost in outcome.given_up] == [[ALICE]]
    assert outbox.tick(now_us + 60 * US, {BOB}) == OutboxDecision()
    assert outbox.waiting().keys() == {BOB}
    # Back again, it is given as many sendings as anybody, and a count of its own.
    for count in (2, 3):
        now_us += 5 * US
        (again,) = outbox.tick(now_us).resend
        assert (again.waiting_for, again.sent_count_to(BOB)) == ([BOB], count)
    outcome = outbox.tick(now_us + 5 * US)
    assert [lost.waiting_for for lost in outcome.given_up] == [[BOB]]
    assert unacknowledged(outbox) == []


def test_a_recipient_given_up_by_its_report_leaves_the_others_theirs() -> None:
    outbox = outbox_with(1, ALICE, BOB, settings=OutboxSettings(limit_sent_count=1))
    outcome = outbox.acknowledge(ALICE, *seen(0), LATER_US)
    assert [lost.waiting_for for lost in outcome.given_up] == [[ALICE]]
    assert outbox.waiting() == {BOB: outbox.checkpoint().sent[0]}


def test_whoever_a_message_was_not_sent_to_is_told_of_its_number() -> None:
    outbox = outbox_with(1, ALICE, BOB)
    second = outbox.append("id-2", 100, [ALICE], T0_US)
    assert (second.waiting_for, second.not_addressed) == ([ALICE, BOB], [BOB])
    assert outbox.acknowledge(ALICE, *seen(2), LATER_US).acknowledged == []
    (again,) = outbox.acknowledge(BOB, *seen(1), LATER_US).resend
    assert (again.number, again.waiting_for, again.not_addressed) == (2, [BOB], [BOB])
    assert again.sent_count_to(BOB) == 2
    assert outbox.acknowledge(BOB, *seen(2), LATER_US).acknowledged == [2]


def test_who_joins_later_is_told_of_the_numbers_before() -> None:
    outbox = outbox_with(3, ALICE)
    outbox.acknowledge(ALICE, *seen(2), LATER_US)
    outbox.append("id-4", 100, [ALICE, BOB], LATER_US)
    state = outbox.checkpoint()
    outbox = Outbox(None, msgspec.json.decode(msgspec.json.encode(state), type=OutboxState))
    told = outbox.acknowledge(BOB, *seen(4, 1, 2, 3), LATER_US).resend
    assert [(one.number, one.waiting_for, one.not_addressed) for one in told] == [
        (1, [BOB], [BOB]),
        (2, [BOB], [BOB]),
        (3, [BOB], [BOB]),
    ]
    # Once: from then on they are sent again as any other.
    assert outbox.acknowledge(BOB, *seen(4, 1, 2, 3), LATER_US).resend == []
    again = outbox.acknowledge(BOB, *seen(4, 1), LATER_US + 5 * US).resend
    assert [(one.number, one.sent_count_to(BOB)) for one in again] == [(1, 2)]
    outbox.acknowledge(BOB, *seen(4), LATER_US + 5 * US)
    assert [sent.waiting_for for sent in outbox.checkpoint().sent] == [[ALICE], [ALICE]]


def test_who_was_never_a_party_is_told_nothing() -> None:
    outbox = outbox_with(2, ALICE)
    assert outbox.acknowledge(BOB, *seen(0), LATER_US) == OutboxDecision()


def test_a_late_party_cannot_fill_the_outbox() -> None:
    outbox = outbox_with(1, ALICE, settings=OutboxSettings(limit_messages=3))
    for number in range(2, 6):
        outbox.acknowledge(ALICE, *seen(number - 1), LATER_US)
        outbox.append(f"id-{number}", 100, [ALICE, BOB] if number == 5 else [ALICE], T0_US)
    outbox.acknowledge(BOB, *seen(5, 1, 2, 3, 4), LATER_US)
    assert unacknowledged(outbox) == [5, 1, 2]


def test_a_sending_that_may_have_arrived_counts_and_is_given_up_in_time() -> None:
    outbox = outbox_with(1, ALICE, BOB, settings=OutboxSettings(limit_sent_count=2))
    (again,) = outbox.resend(ALICE, 1, T0_US + 1).resend
    assert (again.waiting_for, again.sent_count_to(ALICE)) == ([ALICE], 2)
    assert [one.waiting_for for one in outbox.resend(ALICE, 1, T0_US + 2).given_up] == [[ALICE]]
    assert outbox.resend(ALICE, 1, T0_US + 3) == OutboxDecision()
    assert outbox.resend(BOB, 2, T0_US + 3) == OutboxDecision()
