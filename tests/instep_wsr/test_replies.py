"""The reply pattern Response: what the handler returns is the body of the response."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from instep import HandlerConnection, Message
from tests.instep_wsr.wsr_kit import (
    ELIMINATE,
    S11,
    S12,
    UNORDERED,
    CallbackServer,
    body,
    poll,
    request,
    running,
)

pytestmark = pytest.mark.asyncio


class Clerk:
    """A handler that replies with how often it was called."""

    def __init__(self) -> None:
        self.calls = 0
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self, message: Message, connection: HandlerConnection) -> bytes | None:
        del connection
        await self.open.wait()
        self.calls += 1
        index = etree.fromstring(message.body).findtext("index")
        if index == "silent":
            return None
        if index == "wrong":
            return b"no xml"
        return f"<r xmlns='urn:r'>{index} in call {self.calls}</r>".encode()


def said(answer: Any) -> list[str]:
    return [one.text for one in answer.all("r")]


@pytest.mark.parametrize("soap", [S11, S12])
async def test_a_copy_gets_the_same_reply_also_after_a_restart(tmp_path: Path, soap: str) -> None:
    url, clerk = f"sqlite:///{tmp_path}/wsr.db", Clerk()
    expiry = "2050-01-01T00:00:00Z"
    sent = request(0, expires=expiry)
    options: dict[str, Any] = {"replies": True, "max_expiry_s": 1e9}
    async with running(url, handler=clerk, **options) as site:
        for _ in range(2):
            answer = await site.say(sent, body("first"), soap=soap)
            assert (answer.status, answer.replies) == (200, [(0, 0, "")])
            assert said(answer) == ["first in call 1"]
            assert answer.all("r")[0].getparent() is answer.all("Body")[0]
    async with running(url, handler=clerk, **options) as site:
        answer = await site.say(sent, body("first"), soap=soap)
        assert said(answer) == ["first in call 1"]
        later = await site.say(request(1, expires=expiry), body("next"), soap=soap)
        assert (said(later), later.replies) == (["next in call 2"], [(0, 1, "")])


async def test_a_group_of_one_and_one_without_acknowledgement_have_replies() -> None:
    async with running(handler=Clerk(), replies=True) as site:
        answer = await site.say(request(features=UNORDERED), body("a"))
        assert (said(answer), answer.replies) == (["a in call 1"], [(-1, -1, "")])
        answer = await site.say(request(0, group="mid:2@a", features=ELIMINATE), body("b"))
        assert (said(answer), answer.replies) == (["b in call 2"], [])


async def test_a_message_that_waits_for_others_has_its_reply_with_a_copy() -> None:
    async with running(handler=Clerk(), replies=True, reply_timeout_s=600) as site:
        sent = request(1)
        assert (await site.say(sent, body("b"))).status == 202
        first = await site.say(request(0), body("a"))
        assert (said(first), first.replies) == (["a in call 1"], [(0, 1, "")])
        assert said(await site.say(sent, body("b"))) == ["b in call 2"]


async def test_a_reply_that_does_not_come_in_time_comes_with_a_copy() -> None:
    clerk = Clerk()
    clerk.open.clear()
    async with running(handler=clerk, replies=True, reply_timeout_s=0.5) as site:
        sent = request(0)
        answer = await site.say(sent, body("a"))
        assert (answer.status, answer.raw) == (202, b"")
        clerk.open.set()
        while not said(answer):
            answer = await site.say(sent, body("a"))
        assert (said(answer), answer.replies) == (["a in call 1"], [(0, 0, "")])


async def test_no_reply_and_one_that_is_no_xml() -> None:
    async with running(handler=Clerk(), replies=True) as site:
        answer = await site.say(request(0), body("silent"))
        assert (answer.replies, len(answer.all("Body")[0])) == ([(0, 0, "")], 0)
        answer = await site.say(request(1), body("wrong"))
        assert answer.soap_fault == "Server"
        assert (await site.say(poll())).replies == [(0, 1, "")]


async def test_only_response_has_a_body_and_only_where_it_is_set() -> None:
    async with running(handler=Clerk()) as site:
        assert said(await site.say(request(0), body("a"))) == []
    async with (
        CallbackServer().running() as sender,
        running(handler=Clerk(), replies=True, allow_endpoints=[sender.origin]) as site,
    ):
        assert (await site.say(request(0, pattern="Poll"), body("a"))).raw == b""
        called = request(0, group="mid:2@a", pattern="Callback", reply_to=sender.url)
        assert (await site.say(called, body("a"))).raw == b""


async def test_a_refused_message_has_no_reply() -> None:
    clerk = Clerk()
    async with running(handler=clerk, replies=True) as site:
        answer = await site.say(request(0, expires="2001-01-01T00:00:00Z"), body("a"))
        assert (said(answer), answer.replies) == ([], [(0, 0, "InvalidExpiryTime")])
        assert clerk.calls == 0
