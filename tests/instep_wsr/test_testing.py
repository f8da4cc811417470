"""The Sending RMP of the test kit against the receiver, with loss, copies and disorder."""

from __future__ import annotations

import random

import pytest

from instep.model.ranges import Ranges
from instep_soap import SOAP11, SOAP12, SoapVersion, read_envelope
from instep_wsr import ReplyPattern
from tests.instep_wsr.wsr_kit import CallbackServer, body, running, until

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("soap", [SOAP11, SOAP12])
async def test_all_is_delivered_once_and_in_order_whatever_is_lost(soap: SoapVersion) -> None:
    rng = random.Random(7)
    async with running() as site:
        source = site.source(soap=soap)
        for number in range(20):
            source.write(body(number).encode(), number=number, last=number == 19)
        while source.unacknowledged:
            some = [n for n in source.unacknowledged if rng.random() < 0.5]
            rng.shuffle(some)
            if some:
                await source.resend(*some)
        assert source.acknowledged == Ranges.of((0, 19))
        assert source.faults == {}
        assert await site.numbers(source.group_id) == list(range(20))


async def test_a_single_message_without_a_number() -> None:
    async with running() as site:
        source = site.source(sequenced=False)
        await source.send(body(0).encode())
        await source.resend()
        assert (source.unacknowledged, list(source.acknowledged)) == ([], [0])
        assert await site.numbers(source.group_id) == [0]


async def test_polled_and_called_back() -> None:
    async with (
        CallbackServer().running() as server,
        running(allow_endpoints=[server.origin]) as site,
    ):
        polled = site.source(pattern=ReplyPattern.POLL)
        called = site.source(pattern=ReplyPattern.CALLBACK, reply_to=server.url)
        for source in (polled, called):
            await source.send(b"<a/>")
            await source.send(b"<b/>")
            assert source.unacknowledged == [0, 1]
        await polled.poll((0, 0))
        assert polled.unacknowledged == [1]
        await polled.poll()
        assert polled.unacknowledged == []

        async def acknowledged() -> bool:
            for answer in server.got:
                called.read(read_envelope(answer.raw))
            return not called.unacknowledged

        await until(acknowledged)
        assert called.acknowledged == Ranges.of((0, 1))


async def test_a_fault_is_shown_by_its_number() -> None:
    async with running() as site:
        source = site.source()
        await source.send(b"<a/>", expires_at_us=1)
        assert source.faults == {0: "InvalidExpiryTime"}
        assert (source.unacknowledged, list(source.acknowledged)) == ([], [])
