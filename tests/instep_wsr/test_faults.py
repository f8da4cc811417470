"""Every fault code of WS-Reliability is provoked; nothing that is refused is kept."""

from __future__ import annotations

import time
from itertools import count

import pytest

from tests.instep_wsr.wsr_kit import (
    ACK,
    GROUP,
    S11,
    S12,
    UNORDERED,
    WSR,
    Site,
    body,
    envelope,
    poll,
    request,
    running,
    stamp,
    until,
)

pytestmark = pytest.mark.asyncio
IDLE = 'groupMaxIdleDuration="PT1H"'


async def nothing_kept(site: Site) -> None:
    """Nothing was delivered, and the group goes on as if nothing had come."""
    assert await site.numbers() == []
    assert (await site.send(0)).replies == [(0, 0, "")]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"features": "<w:MessageOrder/>"}, "InvalidRequest"),
        ({"features": ACK + "<w:MessageOrder/>"}, "InvalidRequest"),
        ({"expires": "tomorrow"}, "InvalidExpiryTime"),
        ({"expires": "2026-02-30T00:00:00Z"}, "InvalidExpiryTime"),
        ({"expires": "2001-01-01T00:00:00Z"}, "InvalidExpiryTime"),
        ({"expires": "9999-01-01T00:00:00Z"}, "InvalidExpiryTime"),
        ({"pattern": "Later"}, "InvalidReplyPattern"),
        ({"pattern": "Callback"}, "InvalidReplyPattern"),
        ({"pattern": "Callback", "reply_to": "http://127.0.0.1:9/"}, "FeatureNotSupported"),
        ({"pattern": "Callback", "reply_to": "mailto:a@b.example"}, "FeatureNotSupported"),
        ({"last": "perhaps"}, "InvalidMessageParameters"),
        ({"more": 'groupMaxIdleDuration="soon"'}, "InvalidMessageParameters"),
        ({"more": 'groupMaxIdleDuration="PT0S"'}, "InvalidMessageParameters"),
        ({"more": 'groupExpiryTime="soon"'}, "InvalidMessageParameters"),
        ({"more": 'groupExpiryTime="2001-01-01T00:00:00Z"'}, "InvalidMessageParameters"),
        ({"more": f'groupExpiryTime="2099-01-01T00:00:00Z" {IDLE}'}, "InvalidMessageParameters"),
    ],
)
async def test_a_wrong_header_is_answered_about_its_message(
    changes: dict[str, str], fault: str
) -> None:
    async with running() as site:
        answer = await site.send(0, **changes)
        assert (answer.status, answer.replies) == (200, [(0, 0, fault)])
        assert answer.groups == [GROUP]
        await nothing_kept(site)


@pytest.mark.parametrize("number", ["-1", "one", "", "1.5", str(2**63), str(2**64 - 1), "9" * 30])
async def test_a_number_that_is_none_has_the_fault_of_its_group(number: str) -> None:
    async with running() as site:
        answer = await site.send(number)
        assert answer.replies == [(-1, -1, "InvalidMessageId")]
        assert answer.groups == [GROUP]
        await nothing_kept(site)


def without(local: str) -> str:
    """A Request without one of its elements."""
    whole = request(0)
    begin = whole.index(f"<w:{local}")
    end = whole.index(f"</w:{local}>") + len(f"</w:{local}>")
    return whole[:begin] + whole[end:]


@pytest.mark.parametrize("local", ["ExpiryTime", "ReplyPattern"])
async def test_what_is_missing_is_an_invalid_request(local: str) -> None:
    async with running() as site:
        answer = await site.say(without(local), body(0))
        assert answer.replies == [(0, 0, "InvalidRequest")]
        await nothing_kept(site)


@pytest.mark.parametrize("soap", [S11, S12])
@pytest.mark.parametrize(
    ("headers", "fault"),
    [
        ("", "InvalidRequest"),
        (without("MessageId"), "InvalidRequest"),
        (request(0) + request(1), "InvalidRequest"),
        (request(0, group=""), "InvalidMessageId"),
        (request(0, group="x" * 513), "InvalidMessageId"),
        (request(0).replace('groupId="', 'id="'), "InvalidMessageId"),
        (poll().replace("groupId", "id"), "InvalidPollRequest"),
        (poll((3, 2)), "InvalidPollRequest"),
        (poll(("a", 2)), "InvalidPollRequest"),
        ("<w:PollRequest/>", "InvalidPollRequest"),
        (poll().replace("</w:PollRequest>", "<w:ReplyTo/></w:PollRequest>"), "InvalidPollRequest"),
        (poll(reply_to="http://127.0.0.1:9/"), "FeatureNotSupported"),
    ],
    ids=count(),  # not by the headers: they state the time
)
async def test_what_no_response_can_name_is_a_soap_fault(
    soap: str, headers: str, fault: str
) -> None:
    async with running() as site:
        content = "" if "Poll" in headers else body(0)
        answer = await site.say(headers, content, soap=soap)
        assert answer.soap_fault == fault
        assert answer.status == (500 if soap == S11 else 400)
        assert not answer.all("Action"), "WS-Reliability has no addressing"
        await nothing_kept(site)


async def test_a_group_that_lost_a_message_is_aborted() -> None:
    async with running() as site:
        await site.send(1, expires=site.clock.at(30))
        await site.send(2)
        site.clock.ahead_s += 31

        async def aborted() -> bool:
            return bool((await site.say(poll())).faults)

        await until(aborted)
        assert (await site.say(poll())).replies == [
            (1, 1, "PermanentProcessingFailure"),
            (2, 2, "GroupAborted"),
        ]
        answer = await site.send(3, expires=site.clock.at(30))
        assert answer.replies == [
            (1, 1, "PermanentProcessingFailure"),
            (2, 2, "GroupAborted"),
            (3, 3, "GroupAborted"),
        ], "the next message is told what became of the others"
        assert await site.numbers() == []


async def test_what_does_not_fit_may_be_sent_again() -> None:
    async with running(sequence={"limit_messages": 2}) as site:
        await site.send(1)
        await site.send(2)
        assert (await site.send(3)).replies == [(3, 3, "MessageProcessingFailure")]
        assert (await site.send(10**7)).replies == [(10**7, 10**7, "MessageProcessingFailure")]
        assert (await site.send(0)).replies == [(0, 2, "")]
        assert (await site.send(3)).replies == [(0, 3, "")]
        assert await site.numbers() == [0, 1, 2, 3]


async def test_more_groups_than_there_is_room_for_are_refused() -> None:
    async with running(intake={"limit_sequences": 1}) as site:
        await site.send(0)
        answer = await site.send(0, group="mid:2@sender.example")
        assert answer.replies == [(0, 0, "MessageProcessingFailure")]


@pytest.mark.parametrize(
    ("first", "second", "fault"),
    [
        ({}, {"features": UNORDERED}, "InvalidMessageParameters"),
        ({}, {"more": IDLE}, "InvalidMessageParameters"),
        ({"more": IDLE}, {}, "InvalidMessageParameters"),
        ({"last": "true"}, {}, "InvalidMessageParameters"),
        ({"last": "true"}, {"last": "true"}, "InvalidMessageParameters"),
    ],
)
async def test_a_message_that_contradicts_its_group_is_refused(
    first: dict[str, str], second: dict[str, str], fault: str
) -> None:
    async with running() as site:
        assert (await site.send(0, **first)).replies == [(0, 0, "")]
        assert (await site.send(1, **second)).replies == [(1, 1, fault)]
        assert await site.numbers() == [0]


async def test_a_last_number_below_one_that_was_used_is_refused() -> None:
    async with running() as site:
        await site.send(5)
        assert (await site.send(3, last="1")).replies == [(3, 3, "InvalidMessageParameters")]
        assert (await site.send(3)).replies == [(3, 3, "")]


async def test_one_message_and_a_sequence_do_not_share_a_group() -> None:
    async with running() as site:
        assert (await site.send(features=UNORDERED)).replies == [(-1, -1, "")]
        assert (await site.send(0)).replies == [(0, 0, "InvalidMessageId")]
        assert (await site.send(0, group="mid:2@a")).replies == [(0, 0, "")]
        answer = await site.send(group="mid:2@a", features=UNORDERED)
        assert answer.replies == [(-1, -1, "InvalidMessageId")]


async def test_a_fault_of_a_peer_is_not_answered_with_a_fault() -> None:
    async with running() as site:
        fault = "<s:Fault><faultcode>s:Client</faultcode><faultstring>no</faultstring></s:Fault>"
        assert (await site.say("", fault)).status == 202


async def test_what_must_be_understood_and_is_not() -> None:
    async with running() as site:
        strange = '<x:Other xmlns:x="urn:x" s:mustUnderstand="1"/>'
        answer = await site.say(request(0) + strange, body(0))
        assert answer.soap_fault == "MustUnderstand"
        await nothing_kept(site)


async def test_two_elements_in_a_body_are_no_message() -> None:
    async with running() as site:
        answer = await site.post(envelope(request(0), body(0) + body(1)))
        assert (answer.status, answer.soap_fault) == (500, "Client")
        await nothing_kept(site)


async def test_a_header_of_another_namespace_is_no_request() -> None:
    async with running() as site:
        raw = envelope(request(0), body(0)).replace(WSR.encode(), b"urn:other")
        assert (await site.post(raw)).soap_fault == "MustUnderstand"
        assert (await site.post(raw.replace(b's:mustUnderstand="1"', b""))).soap_fault == (
            "InvalidRequest"
        )


async def test_an_expired_message_that_was_delivered_is_acknowledged_all_the_same() -> None:
    async with running() as site:
        short = site.clock.at(60)
        assert (await site.send(0, expires=short)).acknowledged == [(0, 0)]
        site.clock.ahead_s += 61
        assert (await site.send(0, expires=short)).replies == [(0, 0, "")]
        assert (await site.send(1, expires=short)).replies == [(1, 1, "InvalidExpiryTime")]
        later = site.clock.at(60)
        assert (await site.send(1, expires=later)).replies == [(0, 1, "")], "the group goes on"


@pytest.mark.parametrize("number", [0, 1])
async def test_a_copy_with_another_expiry_time_is_a_copy(number: int) -> None:
    first, later = stamp(time.time() + 60), stamp(time.time() + 90)
    async with running() as site:
        for expires in (first, first, later):
            answer = await site.send(number, expires=expires)
            assert not answer.soap_fault
        health = site.receiver.health().intake
        assert health is not None
        assert health.deviations == {"headers-changed": 1}


async def test_without_a_time_zone_it_is_utc() -> None:
    async with running() as site:
        assert (await site.send(0, expires=stamp(time.time() + 60)[:-1])).acknowledged == [(0, 0)]
