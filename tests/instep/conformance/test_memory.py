"""What is judged while a receiver works takes bounded memory, whatever senders send."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from instep.conformance import LiveJudge, RequestAnswered, RequestReceived, RuleBook
from instep_didcomm.conformance import didcomm_rules
from instep_sdpi.conformance import sdpi_rules
from instep_wsr.conformance import wsr_rules
from instep_wsrm.conformance import wsrm_rules
from tests.instep.conformance.live_kit import endless

MOST_BYTES = 12 * 1024 * 1024
REQUESTS = 600
LARGE = b" " * 50_000


def didcomm(number: int) -> bytes:
    return b'{"id":"m%d","type":"t","thid":"t%d","from":"did:x:%d","sender_order":%d,"body":{}}' % (
        number,
        number % 500,
        number % 50,
        number,
    )


def wsrm(number: int) -> bytes:
    return (
        b'<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope"'
        b' xmlns:w="http://docs.oasis-open.org/ws-rx/wsrm/200702"><s:Header><w:Sequence>'
        b"<w:Identifier>urn:%d</w:Identifier><w:MessageNumber>%d</w:MessageNumber></w:Sequence>"
        b"</s:Header><s:Body/></s:Envelope>" % (number, number)
    )


def wsr(number: int) -> bytes:
    return (
        b'<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"'
        b' xmlns:w="http://docs.oasis-open.org/wsrm/2004/06/ws-reliability-1.1.xsd"><s:Header>'
        b'<w:Request s:mustUnderstand="1"><w:MessageId groupId="urn:%d">'
        b'<w:SequenceNum number="%d"/>'
        b"</w:MessageId><w:ExpiryTime>2099-01-01T00:00:00Z</w:ExpiryTime><w:ReplyPattern><w:Value>"
        b"Response</w:Value></w:ReplyPattern></w:Request></s:Header><s:Body/></s:Envelope>"
        % (number, number)
    )


BOOKS: dict[Callable[[], RuleBook], Callable[[int], bytes]] = {
    wsrm_rules: wsrm,
    wsr_rules: wsr,
    didcomm_rules: didcomm,
    sdpi_rules: lambda number: b"%d" % number,
}


@pytest.mark.parametrize("rules", BOOKS, ids=lambda one: one.__name__)
def test_memory_is_bounded_whatever_senders_send(rules: Callable[[], RuleBook]) -> None:
    judged = LiveJudge(rules(), "peer", endless(), lambda *_: None)
    content = BOOKS[rules]
    tracemalloc.start()
    try:
        for number in range(1, REQUESTS + 1):
            # A sequence of its own for each, and as large as many.
            session, raw = f"session {number}", content(number) + LARGE
            judged.take(RequestReceived(number, session, number, str(number), raw))
            if number % 2:
                judged.take(RequestAnswered(number, session, number, True))
            while judged.waits:
                judged.step()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    report = judged.report()
    assert report.messages == REQUESTS
    assert taken < MOST_BYTES
