"""Where mutation begins: what the targets read when all is well, and words worth putting in."""

from __future__ import annotations

import json
import zlib
from typing import Any, Final

from tests.fuzz.didcomm_seeds import DIDCOMM_SEEDS, DIDCOMM_WORDS
from tests.fuzz.sdpi_targets import SDPI_SEEDS, SDPI_WORDS
from tests.fuzz.soap_seeds import SOAP_SEEDS, SOAP_WORDS
from tests.instep_tapi.hostile_kit import CONTINUATION, PING, frame, streams
from tests.instep_tapi.log_record_kit import log_record

__all__ = ["SEEDS", "WORDS"]

_PREFIXED: Final = {f"tapi-streaming:{name}": part for name, part in log_record().items()}
_TOPOLOGY: Final = {
    "uuid": "c",
    "tapi-topology:topology-context": {
        "topology": [
            {
                "uuid": "t",
                "node": [
                    {"uuid": "n", "owned-node-edge-point": [{"uuid": "p", "name": []}]},
                    {"uuid": "n", "total-potential-capacity": {"x": [1.5, None, True, "y"]}},
                ],
            }
        ]
    },
    "list": [{"local-id": "1", "inner": {"uuid": "n"}}],
}


def deflated(*messages: bytes) -> list[bytes]:
    """As a server sends them that keeps its window from one message to the next (RFC 7692)."""
    pack = zlib.compressobj(wbits=-15)
    return [
        (pack.compress(one) + pack.flush(zlib.Z_SYNC_FLUSH)).removesuffix(b"\0\0\xff\xff")
        for one in messages
    ]


def _bytes(*documents: Any) -> list[bytes]:
    return [json.dumps(document, separators=(",", ":")).encode() for document in documents]


SEEDS: Final[dict[str, list[bytes]]] = {
    "reader": _bytes(
        log_record(),
        [log_record(token="1"), log_record(token="2")],
        {"log-record": [log_record()]},
        _PREFIXED,
        {"tapi-streaming:stream-record": {"tapi-streaming:log-record": [_PREFIXED]}},
        log_record(**{"record-type": "RECORD_TYPE_TOMBSTONE", "body": None}),
        log_record(**{"log-append-time-stamp": "20211102223713.0-0500"}),
        log_record(**{"log-append-time-stamp": f"2021-04-28T14:14:28.{'7' * 60}Z"}),
        log_record(body={"record-content": "NODE", "node": {"uuid": "u"}}),
        [{**log_record(), "other:log-record-header": {"token": "not ours"}}],
        {**log_record(), "other:log-record": [log_record()]},
    ),
    "discovery": [
        *_bytes(
            streams("wss://h/x?y=z"),
            {"tapi-streaming:stream-context": streams("/s")},
            {"links": [{"rel": "restconf", "href": "/restconf"}]},
            {"ietf-restconf:errors": {"error": [{"error-message": "no"}]}},
        ),
        b'<XRD xmlns="x"><Link rel="restconf" href="/r"/></XRD>',
    ],
    "frames": [
        b"\x00" + frame(b"[1]") + frame(b"", PING) + frame(b"[2", fin=False),
        b"\x00"
        + frame(b"[2", fin=False)
        + frame(b",3", CONTINUATION, fin=False)
        # A Ping may come between two fragments.
        + frame(b"x" * 125, PING)
        + frame(b"]", CONTINUATION),
        b"\x01" + b"".join(frame(one, rsv1=True) for one in deflated(b"[1]" * 99, b"[1]" * 99)),
        b"\x01" + frame(deflated(bytes(99_999))[0], rsv1=True),
        b"\x01" + frame(deflated(b"[1]" * 99)[0][:5], fin=False, rsv1=True),
    ],
    "http_answer": [
        b"permessage-deflate\n/other?a=b\nWed, 21 Oct 2015 07:28:00 GMT\n400\n4401 token expired",
        b"permessage-deflate; client_max_window_bits=10\nhttps://here:8443/x\n-\n302\n1008 offset",
        b"x, y;z=1\nwss://elsewhere/x\n-\n503\n1011 ",
    ],
    "baseline": _bytes(_TOPOLOGY, {"tapi-common:context": _TOPOLOGY}, [_TOPOLOGY]),
    **DIDCOMM_SEEDS,
    **SOAP_SEEDS,
    **SDPI_SEEDS,
}
WORDS: Final = [
    *(b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"null", b"true", b"-", b"0", b"1e400"),
    *(b"\0", b"\xff", b"\\u0000", b"\\ud800", b"\xef\xbb\xbf", b" ", b"\n", b"tapi-streaming:"),
    *(b"[" * 2_000, b'{"a":' * 2_000, b"9" * 5_000, b"x" * 5_000, b"99999999999999999999"),
    *(b'"uuid":', b'"local-id":', b'"token":', b'"entity-key":', b'"record-content":'),
    *(b"ANY_CLASS", b"CONDITION_DETECTOR", b"RECORD_TYPE_CHANGE", b"9999-12-31T23:59:59-23:59"),
    *DIDCOMM_WORDS,
    *SOAP_WORDS,
    *SDPI_WORDS,
    *(b"0001-01-01T00:00:00+23:59", b"0001-01-01", b"FOREVER", b"ws://u:p@h", b"<!DOCTYPE"),
]
