"""Envelopes, messages, DIDs and heads of requests as they should be."""

from __future__ import annotations

import asyncio
import json
from typing import Final

from instep_didcomm.identity.did_documents import DidDocuments
from instep_didcomm.identity.keys import SecretKeys
from instep_didcomm.wire.pack import EnvelopePacker, Packing
from instep_didcomm.wire.signing import sign
from tests.instep_didcomm.listener_kit import plain

__all__ = ["BOB_KEYS", "DIDCOMM_SEEDS", "DIDCOMM_WORDS", "PATH"]

PATH: Final = "/didcomm"


def _keys(did: str, *keys: str) -> SecretKeys:
    """The secret keys of a DID, one to sign and one to agree: public and secret part of each. They
    are the same each time, so that a case can be run again.
    """
    jwks = []
    for number, (curve, key) in enumerate(zip(("Ed25519", "X25519"), keys, strict=True), 1):
        x, d = key.split(".")
        jwks.append({"kty": "OKP", "crv": curve, "x": x, "d": d, "kid": f"{did}#key-{number}"})
    return SecretKeys(jwks, "fuzz")


_ALICE: Final = (
    "did:peer:2.Vz6Mkwc4gjs68wjsDvJFS3bdFPVWj5R4pr7xwdQmVobgzVk9Q.Ez6LScCjMPDiLVCWMA7"
    "Py5Di4nkCWqD7dVLBXM1hviHnK1Cd7"
)
_BOB: Final = (
    "did:peer:2.Vz6MkiR47gy83kz9XkdFLrrk4eSLa78rKYL1pFTYYexhnwNV2.Ez6LSrpABen16UdbqQy"
    "fotU67rFn6fFLKbdZto9BtoZ2ch8AK.SeyJ0IjoiZG0iLCJzIjp7InVyaSI6Imh0dHBzOi8vYm9iLmV4"
    "YW1wbGUvZGlkY29tbT94PTEiLCJhIjpbImRpZGNvbW0vdjIiXX19"
)
_ALICE_KEYS: Final = _keys(
    _ALICE,
    "_tgPkDGpUA3Rb8Knt_8wtY-BRw4Ygh2d6NIf8cV4rsM.eKgtAKp7A6fNkgbzMQoV-q8MiRcVGspT4O1MpW0doOI",
    "B9PRig_rIPW6BC5B2rGzp6YX_XXuwkPD7k4qEb4tSHo.TFu-GGvFgrAC6z2J9MjbHaXSufxBP-Fm7hBZOcuDAz0",
)
BOB_KEYS: Final = _keys(
    _BOB,
    "Ot4Y-NP1pG_V_IN8raLJvL4Jj0psY7-jCcStUqle1M0.DFp_avVSH8kRuOeQj_-pO1-_WCj2i5ZLHpxD4jHL8wg",
    "4OrXd6iTAihK4iuNEyGQgZge1LEG1FESBxJlHkVVFSg.EO2zrqUToJI6olkhC1BVtt5nnBDresPOyrABS-NIoRs",
)
_BID: Final = {**plain(), "from": _ALICE, "to": [_BOB]}
_RAW: Final = json.dumps(_BID).encode()


async def _packed(packing: Packing) -> bytes:
    packer = EnvelopePacker(_ALICE_KEYS, DidDocuments(), packing)
    return (await packer.pack(_RAW, _ALICE, _BOB))[0]


def _signed() -> bytes:
    secret = _ALICE_KEYS.signing(_ALICE)
    assert secret
    return sign(_RAW, secret.key, secret.kid)


def _head(*headers: str) -> bytes:
    return "\r\n".join([f"POST {PATH} HTTP/1.1", "Host: 127.0.0.1:9555", *headers]).encode()


_KEY: Final = "z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"
_DETECTOR: Final = {"id": "did:example:bob", "last": 5, "gaps": [2, 3]}
DIDCOMM_SEEDS: Final[dict[str, list[bytes]]] = {
    "envelope": [*(asyncio.run(_packed(packing)) for packing in Packing), _signed()],
    "message": [
        content_type + b"\n" + json.dumps(message).encode()
        for content_type, message in (
            (b"application/didcomm-plain+json", _BID),
            (b"application/json; charset=utf-8", plain(received_orders=[_DETECTOR])),
            (b"", plain(please_ack=[""], expires_time=1_700_000_000, created_time=1.0)),
            (b"didcomm-plain+json", plain(custom_headers={"sender_order": 7}, pthid="p")),
            (b"application/didcomm-signed+json", {"payload": "x", "signatures": []}),
        )
    ],
    "did": [
        *(f"{name}#{name.partition(':')[2]}".encode() for name in (_ALICE, _BOB)),
        f"{_BOB}#key-1".encode(),
        _BOB.encode(),
        f"did:key:{_KEY}#{_KEY}".encode(),
        b"did:peer:4zQmd8CpeFPci817KDsbSAKWcXAE2mjvCQSasRewvbSF54Bd:z2M1k7h4psgp4CmJ",
        b"did:web:example.com",
    ],
    "http_head": [
        _head("Content-Type: application/didcomm-plain+json", "Content-Length: 12"),
        _head("Content-Length: 12", "Origin: https://app.example", "Connection: keep-alive"),
        _head("Transfer-Encoding: chunked", "Expect: 100-continue"),
        _head("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"),
    ],
}
DIDCOMM_WORDS: Final = [
    *(b"did:", b"did:peer:2", b"did:peer:4zQm", b"did:key:z", b".Vz6Mk", b".Ez6LS", b"#", b":z"),
    *(b"\r\n", b": ", b"Content-Length: ", b"Host: ", b"Origin: null", b"HTTP/1.0", b"%00", b"+"),
    *(b'"ciphertext":', b'"payload":', b'"signatures":', b'"recipients":', b'"kid":', b"eyJ"),
    *(b".Vz6Mk?" * 200, b'"alg":"none"', b'"received_orders":', b"1e400", b"-1", b"9" * 30),
]
