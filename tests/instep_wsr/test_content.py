"""Messages in other encodings and in packages, over HTTP. WS-Reliability 1.1 binds to SOAP with
Attachments.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from lxml import etree

from instep import Message
from instep.model.messages import Attachment
from tests.instep_soap.package_kit import attached, package, part, related, xop_root
from tests.instep_wsr.wsr_kit import S11, S12, Site, envelope, request, running, stamp, until

pytestmark = pytest.mark.asyncio

MEDIA = {S11: "text/xml", S12: "application/soap+xml"}
BOTH = pytest.mark.parametrize("soap", [S11, S12])
FAST = pytest.mark.parametrize("fast_path", [True, False])
Packed = Callable[[int, str, str], tuple[bytes, str]]
PICTURE = bytes(range(256)) * 20
INCLUDE = '<i:Include xmlns:i="http://www.w3.org/2004/08/xop/include" href="cid:pic1@shop"/>'


def deviations(site: Site) -> dict[str, int]:
    """What the sender is said to have done against its specification."""
    intake = site.receiver.health().intake
    assert intake is not None
    return intake.deviations


EXPIRES = stamp(time.time() + 3600)
"""A copy repeats it."""


def written(number: int, text: str, soap: str) -> str:
    return envelope(
        request(number, expires=EXPIRES), f'<o xmlns="urn:shop">{text}</o>', soap=soap
    ).decode()


async def texts(site: Site) -> list[tuple[int, str | None]]:
    return [(one.number, etree.fromstring(one.body).text) for one in await site.delivered()]


@FAST
@BOTH
async def test_the_charset_of_content_type_counts(soap: str, fast_path: bool) -> None:
    kinds = [
        ('<?xml version="1.0"?>', "iso-8859-1", "; charset=ISO-8859-1"),
        ("", "iso-8859-1", "; charset=iso-8859-1"),
        ("", "utf-8", ""),
        ("", "utf-16", "; charset=us-ascii"),
        ("", "utf-16-be", "; charset=utf-16"),
    ]
    number = 0
    async with running(fast_path=fast_path) as site:
        for declaration, encoding, stated in kinds:
            for _ in range(3):
                raw = (declaration + written(number, "Größe", soap)).encode(encoding)
                answer = await site.post(raw, MEDIA[soap] + stated)
                assert answer.acknowledged == [(0, number)]
                number += 1
        # A copy is one in any charset.
        answer = await site.post(written(1, "Größe", soap).encode(), MEDIA[soap])
        assert answer.acknowledged == [(0, number - 1)]
        assert not deviations(site)
        assert await texts(site) == [(one, "Größe") for one in range(number)]


def swa(number: int, soap: str, boundary: str) -> tuple[bytes, str]:
    root = part(
        f"Content-Type: {MEDIA[soap]}; charset=ISO-8859-1\nContent-ID: <root@x>",
        written(number, "Größe", soap).encode("latin-1"),
    )
    stated = f'multipart/related; type="{MEDIA[soap]}"; boundary="{boundary}"; start="<root@x>"'
    return package(attached("pic1@shop", PICTURE), root, boundary=boundary), stated


def mtom(number: int, soap: str, boundary: str) -> tuple[bytes, str]:
    root = xop_root(written(number, INCLUDE, soap).encode(), MEDIA[soap])
    raw = package(root, attached("pic1@shop", PICTURE), boundary=boundary)
    return raw, related(MEDIA[soap], boundary=boundary)


@FAST
@BOTH
@pytest.mark.parametrize("packed", [swa, mtom])
async def test_attachments_reach_handlers_and_readers(
    soap: str, packed: Packed, fast_path: bool
) -> None:
    taken: list[Message] = []

    async def handler(message: Message, _: object) -> None:
        taken.append(message)

    async def took() -> bool:
        return len(taken) == 3

    wanted = Attachment(
        content_id="pic1@shop", content_type="application/octet-stream", content=PICTURE
    )
    for given in (handler, None):
        async with running(handler=given, fast_path=fast_path) as site:
            for boundary, number in enumerate((0, 2, 1, 1)):
                answer = await site.post(*packed(number, soap, f"B{boundary}"))
                assert answer.status in (200, 202), answer
            assert not deviations(site)
            if given is not None:
                await until(took)
                found = [one.attachments for one in taken]
            else:
                found = [one.attachments for one in await site.delivered()]
        assert found == [(wanted,)] * 3


@BOTH
@pytest.mark.parametrize(
    "stated", ["application/json", "multipart/form-data; boundary=B", "multipart/related", "x"]
)
async def test_what_is_not_understood_is_415_in_the_version_of_its_sender(
    soap: str, stated: str
) -> None:
    async with running() as site:
        answer = await site.post(written(0, "x", soap).encode(), stated)
        assert (answer.status, len(answer.all("Fault"))) == (415, 1)
        assert answer.root is not None
        assert answer.root.tag == f"{{{soap}}}Envelope"
        answer = await site.post(written(0, "x", soap).encode(), MEDIA[soap])
        assert answer.acknowledged == [(0, 0)]


@BOTH
async def test_a_bomb_of_namespaces_is_refused(soap: str) -> None:
    bomb = "".join(f' xmlns:n{number}="u"' for number in range(40_000))
    raw = envelope(request(0, expires=EXPIRES), f"<c{bomb}/>", soap=soap)
    async with running() as site:
        answer = await site.post(raw, MEDIA[soap])
        assert (answer.status, len(answer.all("Fault"))) == (500 if soap == S11 else 400, 1)
        assert b"more than 256 attributes" in answer.raw
        assert not await site.delivered()


@BOTH
async def test_a_number_that_can_never_come_gets_a_final_answer(soap: str) -> None:
    async with running(sequence={"limit_jump": 10}) as site:
        answer = await site.say(request(20), "<o/>", soap=soap)
        assert answer.faults == [(20, 20, "MessageProcessingFailure")]
        answer = await site.say(request(2**62), "<o/>", soap=soap)
        assert answer.faults == [(2**62, 2**62, "InvalidMessageParameters")]
        answer = await site.say(request(0), "<o/>", soap=soap)
        assert answer.acknowledged == [(0, 0)]
