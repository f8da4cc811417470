"""Every captured request of a real source, sent to our destination: the answers mean the same.

The source is gSOAP's; the answers are a responder's, which was told to misbehave in some scenarios,
and gSOAP's own server's. `DIFFERENCES` are those that are meant; the documentation lists them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from lxml import etree

from instep import HandlerConnection, Message
from tests.instep_wsrm.rm_kit import SHARED, Answer, check_valid, create, envelope, running, shared

SCENARIOS = (
    sorted(one.name for one in (SHARED / "wire").iterdir()) if SHARED.is_dir() else ["absent"]
)
_IDENTIFIER = re.compile(rb"Identifier>([^<]+)<")


class Meaning(NamedTuple):
    """What an answer says."""

    fault: str
    body: str
    acknowledged: tuple[tuple[int, int], ...] | None
    final: bool


NOTHING = Meaning("", "", None, False)


def acknowledges(*pairs: tuple[int, int], body: str = "", final: bool = False) -> Meaning:
    return Meaning("", body, pairs, final)


UNASKED = "a message is acknowledged in its response, asked for or not"
TOLD = "gSOAP's responder was told to refuse a message that is in order"
TO_ADDRESS = "an AcksTo that is an address gets the acknowledgement, not the response"
FINAL = "the acknowledgement of a closed sequence is final"
LAST = "a LastMessage is acknowledged as any message is"
UNKNOWN = "an unknown sequence is a fault for every request"

DIFFERENCES: dict[tuple[str, str], tuple[str, Meaning]] = {
    ("ackperiodic11", "02"): (UNASKED, acknowledges((1, 1))),
    ("ackperiodic11", "04"): (UNASKED, acknowledges((1, 3))),
    ("resendafter11", "02"): (UNASKED, acknowledges((1, 1))),
    ("resendafter11", "03"): (UNASKED, acknowledges((1, 2))),
    ("busy11", "03"): (TOLD, acknowledges((1, 2))),
    ("busy11", "04"): (TOLD, acknowledges((1, 3))),
    ("rollover", "03"): (TOLD, acknowledges((1, 2))),
    ("rollover", "04"): (TOLD, acknowledges((1, 3))),
    ("acksto11", "06"): (TO_ADDRESS, NOTHING),
    ("gsoap11_echo_gsoap_server", "05"): (
        FINAL,
        acknowledges((1, 3), body="CloseSequenceResponse", final=True),
    ),
    ("gsoap10_echo_gsoap_server", "05"): (LAST, acknowledges((1, 4))),
    ("gsoap_server_fault10", "04"): (UNKNOWN, Meaning("UnknownSequence", "Fault", None, False)),
    ("gsoap_server_fault10", "05"): (UNKNOWN, Meaning("UnknownSequence", "Fault", None, False)),
    ("gsoap_server_fault11", "04"): (UNKNOWN, Meaning("UnknownSequence", "Fault", None, False)),
}


async def echo(message: Message, connection: HandlerConnection) -> bytes | None:
    del connection
    text = etree.fromstring(message.body).findtext("text")
    return f"<n:echoResponse xmlns:n='urn:rmpeer'><text>{text}</text></n:echoResponse>".encode()


def content(path: Path) -> tuple[str, bytes]:
    """First line of the head, and body, of a captured request or response."""
    head, _, body = path.read_bytes().replace(b"\r\n", b"\n").partition(b"\n\n")
    return head.decode().partition("\n")[0], body.strip()


def meaning(answer: Answer) -> Meaning:
    body = ""
    if answer.root is not None:
        first = next(iter(answer.all("Body")[0]), None)
        body = "" if first is None else str(etree.QName(first).localname)
    ranges = answer.ranges()
    return Meaning(
        answer.fault, body, None if ranges is None else tuple(sorted(ranges)), answer.final
    )


def captured(path: Path) -> Answer:
    first, body = content(path)
    answer = Answer(int(first.split()[1]), b"")
    answer.raw, answer.root = body, etree.fromstring(body) if body else None
    return answer


@pytest.mark.asyncio
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_the_answers_to_a_real_source_mean_the_same(scenario: str) -> None:
    folder = shared() / "wire" / scenario
    options: dict[str, Any] = {
        "allow_endpoints": ["http://127.0.0.1:9"],
        "reply_actions": ["urn:rmpeer/echo"],
    }
    names: dict[bytes, bytes] = {}
    refuses = scenario.startswith("refuse")
    seen = []
    async with running(
        handler=echo, intake={"limit_sequences": 1 if refuses else 10}, **options
    ) as site:
        if refuses:
            assert (await site.post(envelope(body=create()))).status == 200
        for request in sorted(folder.glob("*_request.http")):
            step = request.name[:2]
            theirs = captured(request.with_name(request.name.replace("_request", "_response")))
            head, raw = content(request)
            assert head.startswith("POST ")
            for known, ours in names.items():
                raw = raw.replace(known, ours)
            soap11 = b"http://schemas.xmlsoap.org/soap/envelope/" in raw
            answer = await site.post(raw, "text/xml" if soap11 else "application/soap+xml")
            if theirs.all("CreateSequenceResponse"):
                found = _IDENTIFIER.search(theirs.raw)
                assert found is not None
                names[found[1]] = answer.text("Identifier").encode()
                assert bool(answer.all("Accept")) == bool(theirs.all("Accept"))
            _, expected = DIFFERENCES.get((scenario, step), ("", meaning(theirs)))
            assert meaning(answer) == expected, f"{scenario} {request.name}"
            if answer.root is not None:
                assert answer.text("RelatesTo") in raw.decode()
                assert check_valid(answer.raw) or not expected.acknowledged
            seen.append((scenario, step))
    assert {key for key in DIFFERENCES if key[0] == scenario} <= set(seen)


def test_the_differences_are_those_that_the_documentation_lists() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "wsrm.md"
    text = " ".join(page.read_text().split())
    for reason, _ in DIFFERENCES.values():
        assert reason[1:] in text
