"""What the first message of a group means for its sequence; no I/O."""

from __future__ import annotations

import msgspec
import pytest

from instep.model.messages import MessageHeader
from instep.sequencing import Last, Receive, Refusal, ReportFault, Sequencer
from instep_soap import SOAP11, SOAP12
from instep_wsr import Acknowledge, Options, ReplyPattern, RmFaultCode
from instep_wsr.groups import (
    GroupAttributes,
    attributes_of,
    check_combination,
    check_same_group,
    deadline_us,
    group_settings,
    peer_of,
    reply_to_message,
    reply_to_poll,
)
from instep_wsr.wire.faults import RmFaultError, code_of_fault, code_of_refusal
from instep_wsr.wire.messages import Request

US = 1_000_000
T0_US = 1_800_000_000 * US
OPTIONS = Options(listen="http://127.0.0.1:0")
ORDERED, UNORDERED = GroupAttributes(ordered=True), GroupAttributes()


def request(number: int | None = 0, **changes: object) -> Request:
    whole = Request(
        group_id="mid:1@a",
        number=number,
        expires_at_us=T0_US + 3600 * US,
        pattern=ReplyPattern.RESPONSE,
        ack_requested=True,
        duplicate_elimination=True,
        message_order=True,
    )
    return msgspec.structs.replace(whole, **changes)


def group(attributes: GroupAttributes, **options: object) -> Sequencer:
    changed = msgspec.structs.replace(OPTIONS, **options)
    return Sequencer.open(group_settings(attributes, changed), T0_US)


def receive(sequencer: Sequencer, *numbers: int, expires_s: int = 3600) -> Sequencer:
    until_us = T0_US + expires_s * US
    for number in numbers:
        message = MessageHeader(number, str(number).encode(), 1, until_us)
        sequencer.apply([Receive([message])], T0_US)
    sequencer.committed(sequencer.checkpoint())
    return sequencer


def test_numbers_begin_with_0_and_order_decides_what_a_lost_message_means() -> None:
    ordered, unordered = group(ORDERED), group(UNORDERED)
    for sequencer in (ordered, unordered):
        assert sequencer.next_number == 0
        receive(sequencer, 1)
    assert (ordered.buffered_messages, unordered.buffered_messages) == (1, 0)


@pytest.mark.parametrize(
    ("acknowledge", "claimed"), [(Acknowledge.RECEIPT, "0,2"), (Acknowledge.DELIVERY, "0")]
)
def test_the_option_decides_what_is_acknowledged(acknowledge: Acknowledge, claimed: str) -> None:
    sequencer = receive(group(ORDERED, acknowledge=acknowledge), 0, 2)
    assert str(sequencer.claims().acknowledged()) == claimed


def test_s6_an_undelivered_message_at_its_expiry_aborts_its_group() -> None:
    sequencer = receive(group(ORDERED, acknowledge=Acknowledge.RECEIPT), 0, 2)
    receive(sequencer, 3, expires_s=7200)
    outcome = sequencer.tick(T0_US + 3601 * US)
    assert outcome.dropped == [2, 3]
    assert outcome.effects[:2] == [
        ReportFault([(2, 2)], Refusal.EXPIRED),
        ReportFault([(3, 3)], Refusal.FAILED),
    ]
    sequencer.committed(sequencer.checkpoint())
    reply = reply_to_poll("g", ORDERED, sequencer.claims(), [])
    assert reply.acknowledged == [(0, 0)]
    assert reply.faults == [
        (2, 2, RmFaultCode.PERMANENT_PROCESSING_FAILURE),
        (3, 3, RmFaultCode.GROUP_ABORTED),
    ]


def test_the_shorter_of_both_idle_times_counts() -> None:
    short = group_settings(GroupAttributes(group_max_idle_s=60.0), OPTIONS)
    long = group_settings(GroupAttributes(group_max_idle_s=1e8), OPTIONS)
    none = group_settings(UNORDERED, OPTIONS)
    assert short.idle_timeout_s == 60.0
    assert long.idle_timeout_s == none.idle_timeout_s > 60.0


@pytest.mark.parametrize("persist_duration_s", [None, 60.0])
def test_copies_are_remembered_as_long_as_an_expiry_time_may_be(
    persist_duration_s: float | None,
) -> None:
    sequencer = group(ORDERED, persist_duration_s=persist_duration_s, max_expiry_s=1e6)
    expires_at_us = T0_US + 1_000_000 * US
    changed = msgspec.structs.replace(OPTIONS, persist_duration_s=persist_duration_s)
    deadline = deadline_us(request(expires_at_us=expires_at_us), changed, T0_US)
    message = MessageHeader(0, b"", 1, deadline)
    sequencer.apply([Receive([message]), Last(0)], T0_US)
    assert sequencer.reclaimable_at_us is not None
    assert sequencer.reclaimable_at_us >= expires_at_us


def test_persist_duration_is_no_longer_than_the_expiry_time() -> None:
    given = msgspec.structs.replace(OPTIONS, persist_duration_s=60.0)
    assert deadline_us(request(), given, T0_US) == T0_US + 60 * US
    soon = request(expires_at_us=T0_US + 5 * US)
    assert deadline_us(soon, given, T0_US) == T0_US + 5 * US


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"ack_requested": False}, "AckRequested"),
        ({"duplicate_elimination": False}, "DuplicateElimination"),
        ({"number": None}, "SequenceNum"),
    ],
)
def test_order_needs_the_others(changes: dict[str, object], missing: str) -> None:
    with pytest.raises(RmFaultError) as caught:
        check_combination(request(**changes))  # type: ignore[arg-type]
    assert caught.value.fault is RmFaultCode.INVALID_REQUEST
    assert missing in caught.value.message
    check_combination(request(**{**changes, "message_order": False}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"number": None}, RmFaultCode.INVALID_MESSAGE_ID),
        ({"message_order": False}, RmFaultCode.INVALID_MESSAGE_PARAMETERS),
        ({"group_expires_at_us": T0_US}, RmFaultCode.INVALID_MESSAGE_PARAMETERS),
        ({"group_max_idle_s": 1.0}, RmFaultCode.INVALID_MESSAGE_PARAMETERS),
    ],
)
def test_all_messages_of_a_group_state_the_same(
    changes: dict[str, object], fault: RmFaultCode
) -> None:
    known = attributes_of(request(), SOAP11)
    check_same_group(request(7, last=True), known)
    with pytest.raises(RmFaultError) as caught:
        check_same_group(request(**changes), known)  # type: ignore[arg-type]
    assert caught.value.fault is fault


def test_attributes_survive_their_storing() -> None:
    for soap in (SOAP11, SOAP12):
        stated = attributes_of(request(group_max_idle_s=2.5, reply_to="http://a/b"), soap)
        stored = msgspec.json.decode(msgspec.json.encode(stated), type=GroupAttributes)
        assert stored == stated
        assert stored.soap_version is soap


def test_a_reply_to_a_message_has_the_range_that_it_is_in() -> None:
    sequencer = receive(group(UNORDERED), 0, 1, 4, 5, 9)
    claims = sequencer.claims()
    found = reply_to_message("g", UNORDERED, claims, 4, ack_requested=True)
    assert (found.acknowledged, found.faults) == ([(4, 5)], [])
    assert not reply_to_message("g", UNORDERED, claims, 4, ack_requested=False)


def test_a_reply_to_a_poll_is_cut_to_what_is_asked_and_bounded() -> None:
    sequencer = receive(group(UNORDERED), *range(0, 1_200, 2))
    claims = sequencer.claims()
    assert reply_to_poll("g", UNORDERED, claims, [(3, 5), (8, 8)]).acknowledged == [(4, 4), (8, 8)]
    everything = reply_to_poll("g", UNORDERED, claims, [])
    assert everything.acknowledged == [(number, number) for number in range(0, 512, 2)]
    assert not reply_to_poll("g", UNORDERED, claims, [(1, 1)])


@pytest.mark.parametrize(
    ("group_id", "peer"),
    [
        ("mid:20261122.1@a.example", "a.example"),
        ("http://a.example:80/orders/1", "a.example:80"),
        ("https://a.example?1", "a.example"),
        ("urn:uuid:1", "urn:uuid:1"),
        ("mid:1@", "mid:1@"),
        ("x" * 500, "x" * 255),
    ],
)
def test_the_identifier_names_who_sends(group_id: str, peer: str) -> None:
    assert peer_of(group_id) == peer


def test_every_refusal_has_a_fault() -> None:
    for refusal in Refusal:
        assert code_of_refusal(refusal) in RmFaultCode
        assert code_of_fault(refusal) is not RmFaultCode.INVALID_EXPIRY_TIME
