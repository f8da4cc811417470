"""Envelopes of both reliable protocols as they should be."""

from __future__ import annotations

from typing import Final

from tests.instep_wsr import wsr_kit as wsr
from tests.instep_wsrm import rm_kit as rm

__all__ = ["SOAP_SEEDS", "SOAP_WORDS"]

_EXPIRES: Final = "2050-01-01T00:00:00Z"
_WSRM: Final = [
    rm.envelope(rm.sequence("urn:s", 7), rm.message(7), rm=rm.RM_10),
    rm.envelope(rm.sequence("urn:s", 7), rm.message(7), rm=rm.RM_11),
    rm.envelope(rm.about("SequenceCancel", "urn:s", rm.ranges((1, 3), (7, 9))), rm=rm.RM_11),
    rm.envelope(rm.about("SequenceFill", "urn:s", rm.ranges((4, 5))), rm=rm.RM_11),
    rm.envelope(body=rm.create(), rm=rm.RM_11),
]
_WSR: Final = [
    wsr.envelope(wsr.request(3, expires=_EXPIRES), wsr.body(3)),
    wsr.envelope(wsr.request(None, expires=_EXPIRES), wsr.body(0), soap=wsr.S12),
    wsr.envelope(
        wsr.request(0, expires=_EXPIRES, last="true", more='groupMaxIdleDuration="PT5S"'),
        wsr.body(0),
    ),
    wsr.envelope(
        wsr.request(1, expires=_EXPIRES, pattern="Callback", reply_to="http://a.example/b"),
        wsr.body(1),
    ),
    wsr.envelope(wsr.poll((0, 4), (6, 9), reply_to="http://a.example/b")),
]
SOAP_SEEDS: Final[dict[str, list[bytes]]] = {
    "xml": [
        *_WSRM[:1],
        *_WSR[:1],
        b"<?xml version='1.0' encoding='utf-16'?><a>x</a>".decode().encode("utf-16"),
        b"<a b='>' c=\"'\"><!-- > --><?p <?><![CDATA[</a>]]>&lt;&#65;</a>",
    ],
    "wsrm": _WSRM,
    "wsr": _WSR,
}
SOAP_WORDS: Final = [
    *(b"<", b">", b"</", b"/>", b"<a>", b"</a>", b"<!--", b"-->", b"<![CDATA[", b"]]>", b"<?p ?>"),
    *(b"&lt;", b"&#0;", b"&x;", b"xmlns:w='urn:x'", b"s:mustUnderstand='1'", b"'", b"="),
    *(b"<a>" * 100, b"<a/>" * 300, b"18446744073709551616", b"PT1S", b"-P1Y", b"9" * 30),
    *(b"<w:Request>", b"<w:AckRequested/>", b"groupId=''", b"Callback", b"24:00:00"),
]
