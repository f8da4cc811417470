"""Every fault of both versions, provoked over real HTTP, and input that is no protocol at all."""

from __future__ import annotations

import aiohttp
import pytest

from tests.instep_wsrm.rm_kit import (
    ANONYMOUS,
    RM_10,
    RM_11,
    S11,
    S12,
    WSA_04,
    WSA_05,
    Site,
    about,
    create,
    envelope,
    message,
    ranges,
    running,
    sequence,
    until,
)

pytestmark = pytest.mark.asyncio
UNKNOWN = "urn:uuid:00000000-0000-4000-8000-000000000000"
VERSIONS = pytest.mark.parametrize("rm", [RM_10, RM_11])
SOAPS = pytest.mark.parametrize("soap", [S11, S12])


@VERSIONS
@SOAPS
@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (sequence(UNKNOWN, 1), message(1)),
        (about("AckRequested", UNKNOWN), ""),
        (about("SequenceCancel", UNKNOWN, ranges((1, 2))), ""),
        (about("SequenceFill", UNKNOWN, ranges((1, 2))), ""),
        ("", about("CloseSequence", UNKNOWN)),
        ("", about("TerminateSequence", UNKNOWN)),
    ],
)
async def test_unknown_sequence(rm: str, soap: str, headers: str, body: str) -> None:
    async with running() as site:
        answer = await site.say(headers, body, rm=rm, soap=soap)
    assert answer.fault == "UnknownSequence"
    assert answer.status == (500 if soap == S11 else 400)
    assert answer.text("Action") == (f"{rm}/fault" if rm == RM_11 else f"{WSA_05}/fault")
    assert answer.text("RelatesTo") == "urn:uuid:m"
    assert UNKNOWN in [one.text for one in answer.all("Identifier")]
    if soap == S11:
        assert answer.text("faultcode").endswith(":Client")
        assert answer.all("SequenceFault")
    else:
        assert answer.all("Value")[0].text == "s:Sender"


@VERSIONS
async def test_message_number_rollover(rm: str) -> None:
    async with running() as site:
        name = await site.create(rm=rm)
        answer = await site.say(sequence(name, 2**63), message(1), rm=rm)
        assert answer.fault == "MessageNumberRollover"
        if rm == RM_11:
            assert answer.text("MaxMessageNumber") == str(2**63 - 1)
        assert (await site.say(sequence(name, 1), message(1), rm=rm)).ranges() == [(1, 1)]


async def test_the_highest_number_is_a_number() -> None:
    async with running(sequence={"limit_jump": 0}) as site:
        name = await site.create()
        answer = await site.say(sequence(name, 2**63 - 1), message(1))
        assert answer.ranges() == [(2**63 - 1, 2**63 - 1)]
        answer = await site.say(about("SequenceFill", name, ranges((1, 2**63 - 1))))
        assert answer.ranges() == [(1, 2**63 - 1)]
        answer = await site.say(sequence(name, 2**63), message(1))
        assert answer.fault == "MessageNumberRollover"


@pytest.mark.parametrize(
    ("acks_to", "more"),
    [
        ("http://127.0.0.1:9/acks", ""),
        (f"{WSA_05}/none", ""),
        ("http://docs.oasis-open.org/ws-rx/wsmc/200702/anonymous?id=1", ""),
        ("file:///etc/passwd", ""),
        ("http://[", ""),
    ],
)
@SOAPS
async def test_create_sequence_refused(soap: str, acks_to: str, more: str) -> None:
    async with running() as site:
        answer = await site.say(body=create(acks_to, more), soap=soap)
    assert answer.fault == "CreateSequenceRefused"
    assert not answer.all("SequenceFault")


async def test_create_sequence_is_refused_where_there_is_no_room() -> None:
    async with running(intake={"limit_sequences": 1}) as site:
        await site.create()
        answer = await site.say(body=create())
    assert (answer.status, answer.fault) == (500, "CreateSequenceRefused")


async def test_wsrm_required() -> None:
    async with running() as site:
        assert (await site.say(body=message(1))).fault == "WSRMRequired"
        name = await site.create()
        assert (await site.say(about("AckRequested", name), message(1))).fault == "WSRMRequired"


@pytest.mark.parametrize(
    "acknowledged",
    [ranges((1, 3), local="AcknowledgementRange"), ranges((2, 1), local="AcknowledgementRange")],
)
async def test_invalid_acknowledgement(acknowledged: str) -> None:
    offer = (
        "<w:Offer><w:Identifier>urn:uuid:mine</w:Identifier><w:Endpoint><a:Address>"
        f"{ANONYMOUS}</a:Address></w:Endpoint></w:Offer>"
    )
    async with running() as site:
        answer = await site.say(body=create(more=offer))
        name = answer.text("Identifier")
        assert answer.all("Accept")
        ack = about("SequenceAcknowledgement", "urn:uuid:mine", acknowledged + "<w:Other/>")
        answer = await site.say(sequence(name, 1) + ack, message(1))
        assert answer.fault == "InvalidAcknowledgement"
        (repeated,) = answer.all("AcknowledgementRange")
        assert f"{repeated.get('Lower')}-{repeated.get('Upper')}" in ("1-3", "2-1")
        assert not answer.all("Other")
        assert await site.numbers(name) == []


async def test_an_acknowledgement_of_an_unknown_sequence_is_a_deviation() -> None:
    async with running() as site:
        some = about(
            "SequenceAcknowledgement", UNKNOWN, ranges((1, 3), local="AcknowledgementRange")
        )
        assert (await site.say(some)).status == 202

        async def counted() -> bool:
            health = site.receiver.health().intake
            return health is not None and health.deviations == {"acknowledges-unknown": 1}

        await until(counted)


async def test_a_message_without_addressing_is_taken_and_counted() -> None:
    async with running() as site:
        name = await site.create()
        answer = await site.say(sequence(name, 1), message(1), action="", message_id="")
        assert answer.ranges() == [(1, 1)]
        assert not answer.all("RelatesTo")

        async def counted() -> bool:
            health = site.receiver.health().intake
            return health is not None and health.deviations == {"addressing-missing": 1}

        await until(counted)
        assert [one.id for one in await site.delivered(name)] == [f"{name}#1"]


async def test_a_sequence_in_another_version_is_counted() -> None:
    async with running() as site:
        name = await site.create(rm=RM_11)
        answer = await site.say(sequence(name, 1), message(1), rm=RM_10)
        assert answer.ranges() == [(1, 1)]

        async def counted() -> bool:
            health = site.receiver.health().intake
            return health is not None and health.deviations == {"sequence-of-other-version": 1}

        await until(counted)


@SOAPS
async def test_a_sequence_that_failed_is_terminated(soap: str) -> None:
    times = {"gap_deadline_s": 0.0, "gap_repeat_s": 0.01, "gap_attempts": 0}
    async with running(sequence=times) as site:
        name = await site.create(soap=soap)
        await site.say(sequence(name, 2), message(2), soap=soap)
        answer = await site.say(sequence(name, 1), message(1), soap=soap)
        assert answer.fault == "SequenceTerminated"
        assert (await site.say(about("AckRequested", name), soap=soap)).fault == answer.fault


async def test_a_copy_in_a_sequence_that_failed_is_a_fault_too() -> None:
    gaps = {"gap_deadline_s": 0.05, "gap_attempts": 0}
    async with running(sequence=gaps) as site:
        name = await site.create()
        await site.say(sequence(name, 1), message(1))
        await site.say(sequence(name, 3), message(3))

        async def failed() -> bool:
            return (await site.say(about("AckRequested", name))).fault == "SequenceTerminated"

        await until(failed)
        answer = await site.say(sequence(name, 1), message(1))
        assert answer.fault == "SequenceTerminated"


async def test_no_room_is_503_and_the_same_message_may_come_again() -> None:
    async with running(sequence={"limit_messages": 1, "limit_jump": 10}) as site:
        name = await site.create()
        await site.say(sequence(name, 2), message(2))
        for number in (3, 50):
            answer = await site.say(sequence(name, number), message(number))
            assert (answer.status, answer.all("Value")[0].text) == (503, "s:Receiver")
        assert (await site.say(sequence(name, 1), message(1))).ranges() == [(1, 2)]
        assert (await site.say(sequence(name, 3), message(3))).ranges() == [(1, 3)]


@pytest.mark.parametrize(
    ("headers", "body", "rm"),
    [
        ("<w:Sequence/>", message(1), RM_11),
        (about("Sequence", UNKNOWN), message(1), RM_11),
        (sequence(UNKNOWN, 0), message(1), RM_11),
        (sequence(UNKNOWN, -1), message(1), RM_11),
        (sequence(UNKNOWN, "1.5"), message(1), RM_11),
        (sequence(UNKNOWN, 2**64), message(1), RM_11),
        (sequence(UNKNOWN, "٣"), message(1), RM_11),
        (sequence("x" * 2_000, 1), message(1), RM_11),
        (sequence(UNKNOWN, 1) * 2, message(1), RM_11),
        (about("SequenceCancel", UNKNOWN, ranges((5, 3))), "", RM_11),
        (about("SequenceCancel", UNKNOWN, ranges((0, 3))), "", RM_11),
        (about("SequenceCancel", UNKNOWN, "<w:MessageRange Upper='1'/>"), "", RM_11),
        (f'<v:Sequence xmlns:v="{RM_10}"/>' + sequence(UNKNOWN, 1), message(1), RM_11),
        ("", "<w:CreateSequence/>", RM_11),
        ("", '<v:CreateSequence xmlns:v="urn:draft"/>', RM_11),
        ("", create(more="<w:Expires>soon</w:Expires>"), RM_11),
        ("", "<w:CreateSequenceResponse/>", RM_11),
        ("", about("CloseSequence", UNKNOWN, "<w:LastMsgNumber>x</w:LastMsgNumber>"), RM_10),
    ],
)
async def test_what_cannot_be_meant_is_a_fault_of_the_sender(
    headers: str, body: str, rm: str
) -> None:
    async with running() as site:
        answer = await site.say(headers, body, rm=rm)
    assert answer.status == 400
    assert answer.all("Value")[0].text == "s:Sender"


@pytest.mark.parametrize(
    ("raw", "content_type", "status", "fault"),
    [
        (b"", "application/soap+xml", 400, "Sender"),
        (b"{}", "text/xml", 500, "Client"),
        (b"<a/>", "application/soap+xml", 500, "VersionMismatch"),
        (b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", "text/xml", 500, "Client"),
        (envelope("<h xmlns='urn:h'/>" * 10_000), "application/soap+xml", 400, "Sender"),
        (envelope(body="<x>" * 1_000 + "</x>" * 1_000), "application/soap+xml", 400, "Sender"),
        (
            envelope("<x xmlns='urn:x' s:mustUnderstand='1'/>"),
            "application/soap+xml",
            500,
            "MustUnderstand",
        ),
        (
            envelope("<w:UsesSequenceSSL s:mustUnderstand='1'/>"),
            "application/soap+xml",
            500,
            "MustUnderstand",
        ),
    ],
)
async def test_input_that_is_no_protocol(
    raw: bytes, content_type: str, status: int, fault: str
) -> None:
    async with running() as site:
        answer = await site.post(raw, content_type)
        assert (answer.status, answer.fault) == (status, fault)
        await works(site)


async def test_a_body_over_the_limit() -> None:
    async with running(max_body_bytes=10_000) as site:
        answer = await site_post_status(site, envelope(body="<x>" + "a" * 20_000 + "</x>"))
        assert answer == 413
        await works(site)


@SOAPS
async def test_a_fault_is_not_answered_with_a_fault(soap: str) -> None:
    async with running() as site:
        fault = await site.say(sequence(UNKNOWN, 1), message(1), soap=soap)
        answer = await site.post(fault.raw)
        assert (answer.status, answer.raw) == (202, b"")


async def test_other_content_under_one_number_is_a_deviation() -> None:
    async with running() as site:
        name = await site.create()
        await site.say(sequence(name, 1), message("a"))
        assert (await site.say(sequence(name, 1), message("b"))).ranges() == [(1, 1)]
        health = site.receiver.health().intake
        assert health is not None
        assert health.deviations == {"content-changed": 1}


@pytest.mark.parametrize("delivered", [True, False])
@pytest.mark.parametrize("other", [{"message_id": "urn:uuid:other"}, {"action": "urn:other"}])
async def test_a_copy_with_other_headers_is_a_copy(other: dict[str, str], delivered: bool) -> None:
    number = 1 if delivered else 2
    async with running() as site:
        name = await site.create()
        for changes in ({}, {}, other):
            answer = await site.say(sequence(name, number), message(number), **changes)
            assert answer.ranges() == [(number, number)]
        health = site.receiver.health().intake
        assert health is not None
        assert health.deviations == {"headers-changed": 1}
        await site.say(sequence(name, 1), message(1))
        assert await site.numbers() == ([1] if delivered else [1, 2])


async def test_a_reply_to_that_nobody_allows() -> None:
    reply_to = "<a:ReplyTo><a:Address>http://127.0.0.1:9/r</a:Address></a:ReplyTo>"
    async with running() as site:
        answer = await site.say(reply_to, create())
        assert answer.fault == "OnlyAnonymousAddressSupported"
        answer = await site.say(reply_to, create(), wsa=WSA_04, rm=RM_10)
        assert answer.fault == "EndpointUnavailable"
        name = await site.create()
        answer = await site.say(reply_to + sequence(name, 1), message(1))
        assert answer.ranges() == [(1, 1)]


async def works(site: Site) -> None:
    name = await site.create()
    assert (await site.say(sequence(name, 1), message(1))).ranges() == [(1, 1)]


async def site_post_status(site: Site, raw: bytes) -> int:
    async with aiohttp.ClientSession() as session, session.post(site.url, data=raw) as answer:
        return answer.status
