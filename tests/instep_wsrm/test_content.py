"""Messages in other encodings and in packages, over HTTP: acknowledged, kept whole, in order."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from instep import Message
from instep.model.messages import Attachment
from tests.instep.cli.cli_kit import instep, lines
from tests.instep_soap.package_kit import attached, package, part, related, xop_root
from tests.instep_wsrm.rm_kit import (
    RM_10,
    RM_11,
    S11,
    S12,
    Site,
    envelope,
    running,
    sequence,
    until,
)

pytestmark = pytest.mark.asyncio

MEDIA = {S11: "text/xml", S12: "application/soap+xml"}
BOTH = pytest.mark.parametrize("soap", [S11, S12])
FAST = pytest.mark.parametrize("fast_path", [True, False])
PICTURE = bytes(range(256)) * 20
INCLUDE = '<i:Include xmlns:i="http://www.w3.org/2004/08/xop/include" href="cid:pic1@shop"/>'


def deviations(site: Site) -> dict[str, int]:
    """What the sender is said to have done against its specification."""
    intake = site.receiver.health().intake
    assert intake is not None
    return intake.deviations


def order(text: str) -> str:
    return f'<o xmlns="urn:shop">{text}</o>'


def written(name: str, number: int, text: str, **more: str) -> str:
    return envelope(sequence(name, number), order(text), **more).decode()


@FAST
@BOTH
async def test_the_charset_of_content_type_counts(soap: str, fast_path: bool) -> None:
    """RFC 7303 3: mark, header, declaration. Each kind three times: the third is by a template."""
    kinds = [
        ('<?xml version="1.0"?>', "iso-8859-1", "; charset=ISO-8859-1"),
        ("", "iso-8859-1", '; charset="iso-8859-1"'),
        ('<?xml version="1.0" encoding="utf-8"?>', "iso-8859-1", "; charset=latin1"),
        ("", "utf-8", "; charset=utf-8"),
        ("", "utf-8-sig", "; charset=us-ascii"),
        ("", "utf-16", "; charset=us-ascii"),
        ("", "utf-16-le", "; charset=utf-16"),
        ("", "cp037", "; charset=ibm037"),
    ]
    async with running(fast_path=fast_path) as site:
        name = await site.create(soap=soap)
        number = 0
        for declaration, encoding, stated in kinds:
            for _ in range(3):
                number += 1
                text = declaration + written(name, number, "Größe", soap=soap)
                answer = await site.post(text.encode(encoding), MEDIA[soap] + stated)
                assert answer.status == 200, answer
                assert answer.ranges() == [(1, number)]
        delivered = await site.delivered(name)
    assert [one.number for one in delivered] == list(range(1, number + 1))
    assert {etree.fromstring(one.body).text for one in delivered} == {"Größe"}


@FAST
async def test_a_copy_in_another_charset_is_a_copy(fast_path: bool) -> None:
    async with running(fast_path=fast_path) as site:
        name = await site.create()
        text = written(name, 1, "Größe")
        for encoding in ("utf-8", "iso-8859-1", "utf-16"):
            stated = f"application/soap+xml; charset={encoding}"
            answer = await site.post(text.encode(encoding), stated)
            assert answer.ranges() == [(1, 1)]
        assert len(await site.delivered(name)) == 1
        assert not deviations(site)


@FAST
@BOTH
async def test_bytes_in_ascii_mean_what_the_charset_says(soap: str, fast_path: bool) -> None:
    """A form that was learned is no reason to read other encodings by it."""
    async with running(fast_path=fast_path) as site:
        name = await site.create(soap=soap)
        for number in (1, 2, 3):
            await site.post(written(name, number, "+APY-", soap=soap).encode(), MEDIA[soap])
        raw = written(name, 4, "+APY-", soap=soap).encode()
        for stated, status in (("utf-7", 415), ("utf-16", 400), ("ibm037", 400), ("x-no", 415)):
            answer = await site.post(raw, f"{MEDIA[soap]}; charset={stated}")
            assert (answer.status, len(answer.all("Fault"))) == (status, 1)
            assert answer.raw.count(soap.encode()) == 1
        assert (await site.post(raw, MEDIA[soap])).ranges() == [(1, 4)]


@BOTH
@pytest.mark.parametrize(
    ("stated", "body", "status"),
    [
        ("; charset=us-ascii", "Größe", 400),
        ("; charset=utf-8", b"Gr\xf6\xdfe", 400),
        ("", b"Gr\xf6\xdfe", 400),
        ("; charset=rot13", "x", 415),
    ],
)
async def test_what_is_not_in_its_charset_is_said(
    soap: str, stated: str, body: str | bytes, status: int
) -> None:
    async with running() as site:
        name = await site.create(soap=soap)
        raw = written(name, 1, "@", soap=soap).encode()
        raw = raw.replace(b"@", body.encode() if isinstance(body, str) else body)
        answer = await site.post(raw, MEDIA[soap] + stated)
        assert (answer.status, answer.root is not None) == (status, True)
        assert answer.root is not None
        assert answer.root.tag == f"{{{soap}}}Envelope"
        assert "charset" in str(answer.raw) or "the document is not in" in str(answer.raw)


def mtom(name: str, number: int, soap: str, *, boundary: str = "B", start: bool = True) -> Any:
    """A message whose body includes a picture, with its Content-Type."""
    raw = written(name, number, INCLUDE, soap=soap).encode()
    parts = [xop_root(raw, MEDIA[soap]), attached("pic1@shop", PICTURE), attached("", b"spare")]
    more = '; start="<root@x>"' if start else ""
    if start:
        parts.reverse()
    return package(*parts, boundary=boundary), related(MEDIA[soap], more=more, boundary=boundary)


@BOTH
@pytest.mark.parametrize("start", [True, False])
async def test_a_message_of_mtom_is_kept_with_what_it_includes(soap: str, start: bool) -> None:
    async with running() as site:
        name = await site.create(soap=soap)
        for number in (1, 3, 2):
            answer = await site.post(*mtom(name, number, soap, start=start))
            assert answer.status == 200, answer
        # A copy is one whatever it is packed in.
        assert (await site.post(*mtom(name, 1, soap, boundary="Z"))).ranges() == [(1, 3)]
        assert not deviations(site)
        delivered = await site.delivered(name)
    assert [one.number for one in delivered] == [1, 2, 3]
    for one in delivered:
        assert INCLUDE.encode() in one.body
        contents = {part.content_id: part.content for part in one.attachments}
        assert contents == {"pic1@shop": PICTURE, "": b"spare"}


@BOTH
async def test_a_message_of_swa_is_kept_with_its_attachments(soap: str) -> None:
    async with running() as site:
        name = await site.create(soap=soap)
        root = part(f"Content-Type: {MEDIA[soap]}; charset=ISO-8859-1", b"@")
        raw = written(name, 1, "Größe", soap=soap).encode("latin-1")
        picture = part("Content-Type: image/png\nContent-Location: a/b.png", PICTURE)
        stated = f'multipart/related; type="{MEDIA[soap]}"; boundary=B'
        answer = await site.post(package(root, picture, boundary="B").replace(b"@", raw, 1), stated)
        assert answer.ranges() == [(1, 1)]
        (one,) = await site.delivered(name)
    assert etree.fromstring(one.body).text == "Größe"
    assert one.attachments == (
        Attachment(
            content_id="",
            content_type="image/png",
            content=PICTURE,
            headers={"content-location": "a/b.png"},
        ),
    )


async def test_a_handler_gets_attachments_also_behind_a_gap_and_after_a_restart(
    tmp_path: Path,
) -> None:
    taken: list[Message] = []

    async def handler(message: Message, _: object) -> None:
        taken.append(message)

    async def took() -> bool:
        return len(taken) == 2

    url = f"sqlite:///{tmp_path}/messages.db"
    async with running(url, handler=handler) as site:
        name = await site.create()
        assert (await site.post(*mtom(name, 2, S12))).ranges() == [(2, 2)]
    async with running(url, handler=handler) as site:
        assert (await site.post(*mtom(name, 1, S12))).ranges() == [(1, 2)]
        await until(took)
    for message in taken:
        assert [one.content for one in message.attachments] == [b"spare", PICTURE]
        assert message.size_bytes == len(message.body) + len(PICTURE) + 5


async def test_the_command_shows_attachments(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/messages.db"
    async with running(url) as site:
        name = await site.create()
        await site.post(*mtom(name, 1, S12))
        await site.say(sequence(name, 2), order("plain"))
    asked = ("messages", "--store", url, "--format", "jsonl")
    first, second = lines(await asyncio.to_thread(instep, *asked))
    assert [one["content_id"] for one in first["attachments"]] == ["", "pic1@shop"]
    assert second["attachments"] == []


@BOTH
@pytest.mark.parametrize(
    "stated",
    [
        "application/json",
        "text/plain; charset=utf-8",
        "multipart/form-data; boundary=B",
        "multipart/mixed; boundary=B",
        "multipart/related",
    ],
)
async def test_what_is_not_understood_is_415_in_the_version_of_its_sender(
    soap: str, stated: str
) -> None:
    async with running() as site:
        name = await site.create(soap=soap)
        answer = await site.post(written(name, 1, "x", soap=soap).encode(), stated)
        assert answer.status == 415
        assert answer.root is not None
        assert answer.root.tag == f"{{{soap}}}Envelope"
        assert (await site.say(sequence(name, 1), order("x"), soap=soap)).ranges() == [(1, 1)]


@BOTH
@pytest.mark.parametrize("many", [' xmlns:n{0}="u"', ' a{0}=""', "<a>", "<a/>"])
async def test_bombs_of_xml_are_refused_in_the_version_of_their_sender(
    soap: str, many: str
) -> None:
    bomb = "".join(
        many.format(number) for number in range(50_000 if many.startswith(" ") else 120_000)
    )
    inner = f"<c{bomb}></c>" if many.startswith(" ") else bomb
    async with running() as site:
        raw = envelope(soap=soap, body=inner)
        answer = await site.post(raw, f"{MEDIA[soap]}; charset=utf-8")
    assert answer.status == (500 if soap == S11 else 400)
    assert answer.root is not None
    assert answer.root.tag == f"{{{soap}}}Envelope"
    assert any(word in answer.raw for word in (b"attributes", b"elements", b"well-formed"))
    assert not any(word in answer.raw for word in (b"xmlParse", b"line 1", b"&lt;string"))


@BOTH
async def test_large_messages_are_read_off_the_loop_and_delivered(soap: str) -> None:
    async with running() as site:
        name = await site.create(soap=soap)
        text = "<x y='z'>Größe</x>" * 8_000
        for number in (1, 2):
            raw = written(name, number, text, soap=soap).encode("latin-1")
            answer = await site.post(raw, f"{MEDIA[soap]}; charset=latin-1")
            assert answer.ranges() == [(1, number)]
        delivered = await site.delivered(name)
    for one in delivered:
        assert etree.fromstring(one.body).xpath("count(*)") == 8_000
        assert one.body.count("Größe".encode()) == 8_000


@BOTH
@pytest.mark.parametrize("rm", [RM_10, RM_11])
async def test_a_number_that_can_never_come_gets_a_final_answer(soap: str, rm: str) -> None:
    async with running(sequence={"limit_jump": 10}) as site:
        name = await site.create(soap=soap, rm=rm)
        said = {"soap": soap, "rm": rm}
        assert (await site.say(sequence(name, 20), order("x"), **said)).status == 503
        answer = await site.say(sequence(name, 2**62), order("x"), **said)
        assert answer.fault == "MessageNumberRollover"
        assert answer.status == (500 if soap == S11 else 400)
        assert (await site.say(sequence(name, 1), order("x"), **said)).ranges() == [(1, 1)]


async def test_words_of_the_parser_do_not_reach_peers() -> None:
    async with running() as site:
        name = await site.create()
        for wrong in ("&#0;", "&nbsp;", "<a>", "<x:b/>", "<a b='1' b='2'/>", "\x01", "]]>"):
            answer = await site.say(sequence(name, 1), wrong)
            assert answer.status == 400
            assert answer.text("Text") == "no XML: it is not well-formed"
