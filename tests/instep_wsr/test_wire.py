"""What is written is read again, whatever the numbers; what is damaged is a fault and no error."""

from __future__ import annotations

import contextlib

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from lxml.etree import Element, _Element

from instep_soap import SOAP11, SOAP12, SoapFaultError, SoapVersion, read_envelope
from instep_wsr import ReplyPattern, RmFaultCode
from instep_wsr.wire import encoder
from instep_wsr.wire.decoder import read_headers
from instep_wsr.wire.faults import RmFaultError
from instep_wsr.wire.messages import (
    GroupReply,
    Pairs,
    PolledGroup,
    PollRequest,
    Request,
    WsrHeaders,
)
from tests.instep_wsr.wsr_kit import Answer, body, envelope, request

SOAPS = st.sampled_from([SOAP11, SOAP12])
NUMBERS = st.integers(0, 2**63 - 1)
PAIRS = st.lists(st.tuples(NUMBERS, NUMBERS).map(lambda pair: (min(pair), max(pair))), max_size=4)
GROUPS = st.sampled_from(["mid:1@a.example", "urn:uuid:1", 'http://a/?q="<&>'])
TIMES_US = st.integers(1, 253_402_300_799_000_000)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    number = draw(st.none() | NUMBERS)
    sequenced = number is not None
    expires_at_us = draw(st.just(0) | TIMES_US) if sequenced else 0
    pattern = draw(st.sampled_from(ReplyPattern))
    idle_s = None
    if sequenced and not expires_at_us:
        idle_s = draw(st.none() | st.integers(1, 10**9).map(lambda ms: ms / 1000))
    return Request(
        group_id=draw(GROUPS),
        number=number,
        last=sequenced and draw(st.booleans()),
        group_expires_at_us=expires_at_us,
        group_max_idle_s=idle_s,
        expires_at_us=draw(TIMES_US),
        pattern=pattern,
        reply_to="http://a.example/b" if pattern is ReplyPattern.CALLBACK else "",
        ack_requested=draw(st.booleans()),
        duplicate_elimination=draw(st.booleans()),
        message_order=draw(st.booleans()),
    )


@given(SOAPS, requests(), GROUPS, PAIRS)
def test_headers_are_read_as_they_were_written(
    soap: SoapVersion, message: Request, group_id: str, ranges: Pairs
) -> None:
    poll = PollRequest([PolledGroup(group_id, ranges)], "http://a.example/c")
    raw = encoder.envelope(soap, [encoder.request(message), encoder.poll_request(poll)])
    assert read_headers(read_envelope(raw)) == WsrHeaders(message, poll)


@given(SOAPS, GROUPS, PAIRS, st.lists(st.tuples(NUMBERS, NUMBERS, st.sampled_from(RmFaultCode))))
def test_replies_are_written_by_range(
    soap: SoapVersion, group_id: str, ranges: Pairs, faults: list[tuple[int, int, RmFaultCode]]
) -> None:
    reply = GroupReply(group_id, sequenced=True, acknowledged=ranges, faults=faults)
    answer = Answer(200, encoder.envelope(soap, [encoder.response([reply])]))
    assert answer.groups == [group_id]
    assert answer.replies == [(low, high, "") for low, high in ranges] + [
        (low, high, str(code)) for low, high, code in faults
    ]


CODES = st.sampled_from(RmFaultCode)
REPLIES = st.builds(
    GroupReply,
    GROUPS | st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1),
    sequenced=st.booleans(),
    acknowledged=PAIRS,
    faults=st.lists(st.tuples(NUMBERS, NUMBERS, CODES), max_size=2),
).filter(bool)


@given(SOAPS, st.lists(REPLIES, min_size=1, max_size=3))
def test_a_response_written_as_text_is_the_same(
    soap: SoapVersion, replies: list[GroupReply]
) -> None:
    plain = encoder.envelope(soap, [encoder.response(replies)])
    assert encoder.response_envelope(soap, replies) == plain


def test_elements_may_be_in_any_order_and_strange_ones_are_passed_over() -> None:
    plain = read_headers(read_envelope(envelope(request(3), body(3)))).request
    assert plain is not None
    raw = encoder.envelope(SOAP11, [_shuffled(plain)])
    assert read_headers(read_envelope(raw)).request == plain


def _shuffled(message: Request) -> _Element:
    block = encoder.request(message)
    strange = Element("{urn:x}Other", {"number": "9"})
    children = [*list(block), strange]
    for child in reversed(children):
        block.append(child)
    return block


@given(st.data())
def test_damage_is_a_fault_and_no_error(data: st.DataObject) -> None:
    raw = bytearray(envelope(request(1, more='groupMaxIdleDuration="PT1H"'), body(1)))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(raw) - 1))
        raw[place] = data.draw(st.integers(0, 255))
    with contextlib.suppress(SoapFaultError, RmFaultError):
        found = read_headers(read_envelope(bytes(raw)))
        assert isinstance(msgspec.json.encode(found), bytes)
