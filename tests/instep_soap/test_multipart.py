"""Packages as they come: the root part is the envelope, the rest is kept."""

from __future__ import annotations

import base64
import binascii
from contextlib import suppress

import pytest

from instep.model.messages import Attachment
from instep_soap import SOAP11, SOAP12, SoapFaultError, read_envelope
from instep_soap.content import body_and_digest, read_content, stated_version
from instep_soap.media_type import read_media_type
from instep_soap.multipart import PackageError, read_package
from tests.instep_soap.package_kit import BOUNDARY, attached, package, part, related, xop_root

ROOT = xop_root(b"<e/>")
BINARY = bytes(range(256)) * 4 + b"\r\n\r\n--\r\n\n--" + BOUNDARY.encode() + b"x\r\n"
TYPE = read_media_type(related())


def test_the_first_part_is_the_root_and_the_others_are_kept_byte_for_byte() -> None:
    found = read_package(package(ROOT, attached("pic1@shop", BINARY), attached("", b"")), TYPE)
    assert found.root.content == b"<e/>"
    assert found.attachments == (
        Attachment(content_id="pic1@shop", content_type="application/octet-stream", content=BINARY),
        Attachment(
            content_id="",
            content_type="application/octet-stream",
            content=b"",
            headers={"x-nothing": "here"},
        ),
    )


@pytest.mark.parametrize("start", ["<root@x>", "root@x", " <root@x> "])
def test_start_names_the_root(start: str) -> None:
    stated = read_media_type(related(more=f'; start="{start}"'))
    found = read_package(package(attached("a@x", b"1"), ROOT, attached("b@x", b"2")), stated)
    assert found.root.content == b"<e/>"
    assert [one.content_id for one in found.attachments] == ["a@x", "b@x"]


@pytest.mark.parametrize(
    ("stated", "boundary"),
    [
        ('multipart/related; boundary="a b"', "a b"),
        ("multipart/related; boundary=--=_Part_1.2", "--=_Part_1.2"),
        ("Multipart/Related; Boundary='()+_,-./:=?", "'()+_,-./:=?"),
        ('multipart/related;type="a/b;c=d";boundary="x\\"y"', 'x"y'),
    ],
)
def test_boundaries_are_quoted_in_many_ways(stated: str, boundary: str) -> None:
    found = read_package(package(ROOT, boundary=boundary), read_media_type(stated))
    assert found.root.content == b"<e/>"


@pytest.mark.parametrize(
    "raw",
    [
        b"a preamble\r\n--" + BOUNDARY.encode() + b"-no\r\n" + package(ROOT),
        package(ROOT) + b"an epilogue\r\n--" + BOUNDARY.encode() + b"\r\n\r\nmore",
        package(ROOT).removesuffix(b"\r\n"),
        package(xop_root(b"<e/>").replace(b"\r\n", b"\n"), end=b"\n"),
        package(ROOT).replace(BOUNDARY.encode() + b"\r\n", BOUNDARY.encode() + b" \t\r\n"),
        package(part("content-TYPE:application/xop+xml;\n\ttype=\n  'text/xml'", b"<e/>")),
        package(part("Content-Type: text/xml\nContent-Transfer-Encoding: BASE64", b"PGUv\r\nPg==")),
        package(
            part(
                "Content-Type: text/xml\nContent-Transfer-Encoding: quoted-printable",
                b"<e=\r\n/=3E",
            )
        ),
    ],
    ids=["preamble", "epilogue", "no last line end", "LF", "padding", "folded", "base64", "qp"],
)
def test_odd_packages_are_read(raw: bytes) -> None:
    found = read_package(raw, TYPE)
    assert (found.root.content, found.attachments) == (b"<e/>", ())


def test_transfer_encodings_are_undone() -> None:
    head = "\nContent-Transfer-Encoding: "
    parts = [
        attached("a", base64.encodebytes(BINARY), head + "base64"),
        attached("b", binascii.b2a_qp(BINARY, istext=False), head + "quoted-printable"),
        *(attached(one, BINARY, head + one) for one in ("binary", "8bit", "7bit")),
    ]
    found = read_package(package(ROOT, *parts), TYPE)
    assert [one.content for one in found.attachments] == [BINARY] * 5


def test_a_package_within_a_package_is_an_attachment() -> None:
    inner = package(attached("x", b"1"), boundary="inner")
    nested = part('Content-Type: multipart/mixed; boundary="inner"\nContent-ID: <n>', inner)
    (found,) = read_package(package(ROOT, nested), TYPE).attachments
    assert (found.content_type, found.content) == ('multipart/mixed; boundary="inner"', inner)


@pytest.mark.parametrize(
    ("raw", "stated", "why", "status"),
    [
        (package(ROOT), "multipart/related", "needs a boundary", 415),
        (package(ROOT), f'multipart/related; boundary="{"x" * 71}"', "needs a boundary", 415),
        (package(), related(), "without a part", 415),
        (b"", related(), "without a part", 415),
        (package(ROOT), related(boundary="other"), "without a part", 415),
        (package(ROOT), related(more='; start="<a@x>"'), "that start names", 415),
        (package(ROOT).partition(b"--\r\n")[0], related(), "has no end", 400),
        (package(ROOT).removesuffix(b"--\r\n") + b"\r\n", related(), "has no end", 400),
        (package(ROOT, ROOT), related(), "the same Content-ID", 400),
        (package(b"no head"), related(), "no empty line", 400),
        (package(b"a: " + b"x" * 9_000 + b"\r\n\r\n"), related(), "longer than", 400),
        (package(part("no header", b"<e/>")), related(), "is no header", 400),
        (package(part("a: \0", b"<e/>")), related(), "is no header", 400),
        (package(part("Content-Transfer-Encoding: gzip", b"")), related(), "RFC 2045", 415),
        (package(part("Content-Transfer-Encoding: base64", b"a")), related(), "base64", 400),
        (package(*[b"\r\n"] * 129), related(), "more than 128 parts", 400),
        ((b"\n--" + BOUNDARY.encode() + b"x") * 5_000, related(), "look like", 400),
    ],
)
def test_what_is_no_package_is_refused_with_a_sentence(
    raw: bytes, stated: str, why: str, status: int
) -> None:
    with pytest.raises(PackageError, match=why) as caught:
        read_package(raw, read_media_type(stated))
    assert caught.value.status == status


def test_the_time_is_linear() -> None:
    size, mark = 1 << 20, b"--" + BOUNDARY.encode()
    for one in (
        b"\n" + mark,
        mark + b" " * 300,
        b"\n" + mark + b"\n",
        b"\n\n",
        b"\r\n ",
        b"a: b\r\n",
    ):
        raw = mark + b"\r\n" + one * (size // len(one))
        for whole in (raw, raw + package(ROOT)):
            with suppress(PackageError):
                read_package(whole, TYPE)


@pytest.mark.parametrize(
    ("content_type", "raw", "version"),
    [
        ("text/xml", b"", SOAP11),
        ("application/soap+xml; charset=x", b"", SOAP12),
        (related(), b"", SOAP11),
        (related("application/soap+xml; action=x"), b"", SOAP12),
        ('multipart/related; type="text/xml"', b"", SOAP11),
        ("multipart/related", package(xop_root(SOAP11.namespace.encode())), SOAP11),
        ("application/json", SOAP11.namespace.encode(), SOAP11),
        ("application/json", SOAP12.namespace.encode("utf-16"), SOAP12),
        ("application/json", b"{}", SOAP12),
        ("", b"", SOAP12),
    ],
)
def test_the_version_of_a_sender(content_type: str, raw: bytes, version: object) -> None:
    assert stated_version(raw, content_type) is version


def digest(raw: bytes, content_type: str) -> bytes:
    content = read_content(raw, content_type)
    return body_and_digest(read_envelope(content.document), content.attachments)[1]


def envelope(href: str) -> bytes:
    include = f'<i:Include xmlns:i="http://www.w3.org/2004/08/xop/include" href="{href}"/>'
    return (
        f'<s:Envelope xmlns:s="{SOAP11.namespace}"><s:Body><o>{include}</o></s:Body></s:Envelope>'
    ).encode()


def test_a_copy_is_known_by_its_content_whatever_it_was_packed_in() -> None:
    def packed(name: str, content: bytes, more: bytes = b"", boundary: str = BOUNDARY) -> bytes:
        parts = [xop_root(envelope(f"cid:{name}")), attached(name, content)]
        parts += [attached("", more)] if more else []
        return digest(package(*parts, boundary=boundary), related(boundary=boundary))

    first = packed("a@x", b"content")
    assert packed("b@x", b"content", boundary="other") == first
    assert packed("a@x", b"other") != first
    assert packed("a@x", b"content", b"more") != first


def test_what_is_included_must_have_come() -> None:
    raw = package(xop_root(envelope("cid:a%40x")), attached("a@x", b"1"))
    content = read_content(raw, related())
    assert content.includes
    body, _ = body_and_digest(read_envelope(content.document), content.attachments)
    assert b'href="cid:a%40x"' in body


@pytest.mark.parametrize(
    ("content_type", "raw", "status"),
    [
        ("application/json", b"{}", 415),
        ("text/plain", b"<e/>", 415),
        ("multipart/form-data; boundary=x", b"", 415),
        ("xml", b"<e/>", 415),
        ("application/octet-stream", b"\x89PNG", 415),
        ("", b"", 415),
        ("text/xml; charset=utf-7", b"<e/>", 415),
        ("text/xml; charset=us-ascii", "<e>é</e>".encode(), 400),
        (related(), package(part("Content-Type: image/png", b"")), 415),
        (related(), package(part("Content-Type: text/xml; charset=no", b"<e/>")), 415),
    ],
)
def test_what_is_not_understood_is_415(content_type: str, raw: bytes, status: int) -> None:
    with pytest.raises(SoapFaultError) as caught:
        read_content(raw, content_type)
    assert caught.value.status == status
