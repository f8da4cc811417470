"""Content-Type as senders write it."""

from __future__ import annotations

import pytest

from instep_soap.media_type import read_media_type


@pytest.mark.parametrize(
    ("stated", "essence", "parameters"),
    [
        ("text/xml", "text/xml", {}),
        ("Text/XML; Charset=UTF-8", "text/xml", {"charset": "UTF-8"}),
        ("text/xml;charset='utf-8'", "text/xml", {"charset": "'utf-8'"}),
        ("text/xml charset=utf-8", "text/xml", {"charset": "utf-8"}),
        ("text/xml ; charset = utf-8 ;", "text/xml", {"charset": "utf-8"}),
        (
            'multipart/related; boundary="a\\"b; c"; start="<root@x>"; type=text/xml',
            "multipart/related",
            {"boundary": 'a"b; c', "start": "<root@x>", "type": "text/xml"},
        ),
        (
            "a/b; start=<root@x>; boundary=--=_x?y",
            "a/b",
            {"start": "<root@x>", "boundary": "--=_x?y"},
        ),
        ("a/b; x=1; X=2", "a/b", {"x": "1"}),
        ("", "application/octet-stream", {}),
        ("xml", "", {}),
        ("/", "", {}),
    ],
)
def test_a_content_type(stated: str, essence: str, parameters: dict[str, str]) -> None:
    read = read_media_type(stated)
    assert (read.essence, read.parameters) == (essence, parameters)


def test_the_charset_is_its_bare_name() -> None:
    assert read_media_type("text/xml; charset='ISO-8859-1'").charset == "iso-8859-1"
    assert read_media_type("text/xml").charset == ""


@pytest.mark.parametrize(
    ("stated", "found"),
    [
        ("text/xml", True),
        ("application/soap+xml", True),
        ("application/xop+xml", True),
        ("", True),
        ("application/octet-stream", True),
        ("application/json", False),
        ("text/plain", False),
        ("application/x-www-form-urlencoded", False),
        ("xml", False),
    ],
)
def test_what_may_be_xml(stated: str, found: bool) -> None:
    assert read_media_type(stated).may_be_xml is found


def test_the_time_is_linear() -> None:
    for repeated in ('; a="', ";", " ; ", '; a="\\', "; a=b", "=", '"'):
        read_media_type("a/b" + repeated * 20_000)
