"""Where mutation begins: what the targets read when all is well, and words worth putting in."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.instep_tapi.hostile_kit import streams
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
    "baseline": _bytes(_TOPOLOGY, {"tapi-common:context": _TOPOLOGY}, [_TOPOLOGY]),
}
WORDS: Final = [
    *(b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"null", b"true", b"-", b"0", b"1e400"),
    *(b"\0", b"\xff", b"\\u0000", b"\\ud800", b"\xef\xbb\xbf", b" ", b"\n", b"tapi-streaming:"),
    *(b"[" * 2_000, b'{"a":' * 2_000, b"9" * 5_000, b"x" * 5_000, b"99999999999999999999"),
    *(b'"uuid":', b'"local-id":', b'"token":', b'"entity-key":', b'"record-content":'),
    *(b"ANY_CLASS", b"CONDITION_DETECTOR", b"RECORD_TYPE_CHANGE", b"9999-12-31T23:59:59-23:59"),
    *(b"0001-01-01T00:00:00+23:59", b"0001-01-01", b"FOREVER", b"ws://u:p@h", b"<!DOCTYPE"),
]
