"""The requests of the senders, by protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

__all__ = [
    "DIDCOMM",
    "PATH",
    "PROTOCOLS",
    "RM",
    "SOAP_TYPE",
    "WSR",
    "Protocol",
    "envelope",
    "request",
]

PATH: Final = "/bench"
DIDCOMM: Final = "https://example.org/bench/1.0"
RM: Final = "http://docs.oasis-open.org/ws-rx/wsrm/200702"
SOAP_TYPE: Final = "application/soap+xml"
WSR: Final = "http://docs.oasis-open.org/wsrm/2004/06/ws-reliability-1.1.xsd"
_SOAP: Final = "http://www.w3.org/2003/05/soap-envelope"
_WSA: Final = "http://www.w3.org/2005/08/addressing"
_BODY: Final = "x" * 500


class Protocol(msgspec.Struct, frozen=True):
    """How one protocol is spoken."""

    media_type: str
    message: Callable[[str, int], bytes]
    """The body of a request, of a scope and with a number."""
    first_number: int = 1
    opening: bytes = b""
    """The request that opens a scope; empty: the first message does."""


def _didcomm(scope: str, number: int) -> bytes:
    plaintext = {
        "id": f"{scope}-{number:07d}",
        "type": f"{DIDCOMM}/say",
        "from": f"did:example:{scope}",
        "thid": f"thread-{scope}",
        "created_time": 1_700_000_000,
        "sender_order": number,
        "body": {"text": _BODY},
    }
    return msgspec.json.encode(plaintext)


def _wsrm(scope: str, number: int) -> bytes:
    header = (
        f'<a:Action s:mustUnderstand="true">urn:bench/say</a:Action>'
        f"<a:MessageID>urn:uuid:{scope}-{number}</a:MessageID>"
        f'<r:Sequence s:mustUnderstand="true"><r:Identifier>{scope}</r:Identifier>'
        f"<r:MessageNumber>{number}</r:MessageNumber></r:Sequence>"
    )
    return envelope(RM, header, f'<say xmlns="urn:bench"><text>{_BODY}</text></say>')


def _wsr(scope: str, number: int) -> bytes:
    header = (
        f'<r:Request s:mustUnderstand="true"><r:MessageId groupId="mid:{scope}@bench.example">'
        f'<r:SequenceNum number="{number}"/></r:MessageId>'
        f"<r:ExpiryTime>2050-01-01T00:00:00Z</r:ExpiryTime>"
        "<r:ReplyPattern><r:Value>Response</r:Value></r:ReplyPattern>"
        "<r:AckRequested/><r:DuplicateElimination/><r:MessageOrder/></r:Request>"
    )
    return envelope(WSR, header, f'<say xmlns="urn:bench"><text>{_BODY}</text></say>')


def envelope(namespace: str, header: str, body: str = "") -> bytes:
    """An envelope; the prefix of the namespace is ``r``."""
    return (
        f'<s:Envelope xmlns:s="{_SOAP}" xmlns:a="{_WSA}" xmlns:r="{namespace}">'
        f"<s:Header>{header}</s:Header><s:Body>{body}</s:Body></s:Envelope>"
    ).encode()


_CREATE: Final = envelope(
    RM,
    f'<a:Action s:mustUnderstand="true">{RM}/CreateSequence</a:Action>'
    "<a:MessageID>urn:uuid:bench</a:MessageID>",
    f"<r:CreateSequence><r:AcksTo><a:Address>{_WSA}/anonymous</a:Address></r:AcksTo>"
    "</r:CreateSequence>",
)

PROTOCOLS: Final = {
    "didcomm": Protocol("application/didcomm-plain+json", _didcomm),
    "wsrm": Protocol(SOAP_TYPE, _wsrm, opening=_CREATE),
    "wsr": Protocol(SOAP_TYPE, _wsr, first_number=0),
}


def request(protocol: Protocol, body: bytes) -> bytes:
    """The bytes of an HTTP request."""
    return (
        b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b"
    ) % (PATH.encode(), protocol.media_type.encode(), len(body), body)
