"""Envelopes are opened down to the plaintext, and who sent them to whom is proven or refused.

The packed messages are didcomm-messaging's own; `test_listener_libraries.py` has those of another
library.
"""

from __future__ import annotations

import asyncio
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from aries_askar import Key, KeyAlg
from hypothesis import given
from hypothesis import strategies as st

from instep_didcomm.identity.did_documents import DidDocuments
from instep_didcomm.identity.keys import SecretKeys, new_identity
from instep_didcomm.problems import MessageRefusedError, Reason
from instep_didcomm.wire.envelope import Form
from instep_didcomm.wire.pack import EnvelopePacker, Packing
from instep_didcomm.wire.signing import sign
from instep_didcomm.wire.unpack import EnvelopeUnpacker
from tests.instep_didcomm.listener_kit import plain


@dataclass
class Party:
    did: str
    keys: SecretKeys
    unpacker: EnvelopeUnpacker

    async def pack(self, message: object, to: str, packing: Packing) -> bytes:
        raw = message if isinstance(message, bytes) else json.dumps(message).encode()
        return (await EnvelopePacker(self.keys, DidDocuments(), packing).pack(raw, self.did, to))[0]

    def sign(self, message: object) -> bytes:
        secret = self.keys.signing(self.did)
        assert secret
        return sign(json.dumps(message).encode(), secret.key, secret.kid)


def party() -> Party:
    did, secrets = new_identity()
    keys = SecretKeys(json.loads(secrets)["keys"])
    return Party(did, keys, EnvelopeUnpacker(keys, DidDocuments()))


ALICE, BOB, MALLORY = party(), party(), party()
BID = {**plain(), "from": ALICE.did, "to": [BOB.did]}


def envelope(raw: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    message = json.loads(raw)
    change(message)
    return json.dumps(message).encode()


async def refusal(raw: bytes, by: Party = BOB) -> MessageRefusedError:
    with pytest.raises(MessageRefusedError) as caught:
        await by.unpacker.unpack(raw)
    return caught.value


@pytest.mark.asyncio
@pytest.mark.parametrize("packing", Packing)
async def test_each_envelope_gives_the_plaintext_and_what_it_proves(packing: Packing) -> None:
    unpacked = await BOB.unpacker.unpack(await ALICE.pack(BID, BOB.did, packing))
    assert unpacked.message == BID
    proves = packing in (Packing.AUTHCRYPT, Packing.SIGNED)
    assert unpacked.authors == ([ALICE.did] if proves else [])
    hidden = packing in (Packing.AUTHCRYPT, Packing.ANONCRYPT)
    assert unpacked.holders == ([BOB.did] if hidden else [])
    assert unpacked.form is (Form.ENCRYPTED if hidden else Form(packing.value))


@pytest.mark.asyncio
async def test_signed_in_encrypted_in_encrypted() -> None:
    inner = await ALICE.pack(ALICE.sign(BID), BOB.did, Packing.AUTHCRYPT)
    unpacked = await BOB.unpacker.unpack(await MALLORY.pack(inner, BOB.did, Packing.ANONCRYPT))
    assert unpacked.message == BID
    assert unpacked.authors == [ALICE.did, ALICE.did]
    assert unpacked.signed


@pytest.mark.asyncio
async def test_recipients_in_any_order_are_opened() -> None:
    """`apv` is made of the key ids in order, whatever order the recipients are listed in."""
    dids = sorted([BOB.did, MALLORY.did], reverse=True)
    packer = EnvelopePacker(ALICE.keys, DidDocuments(), Packing.AUTHCRYPT)
    raw = await packer._packaging.pack(
        packer._crypto, DidDocuments(), ALICE.keys, json.dumps(BID).encode(), dids, ALICE.did
    )
    assert (await BOB.unpacker.unpack(raw)).message == BID


def flip(text: str) -> str:
    raw = bytearray(urlsafe_b64decode(text + "=="))
    raw[len(raw) // 2] ^= 1
    return urlsafe_b64encode(bytes(raw)).rstrip(b"=").decode()


@pytest.mark.asyncio
@pytest.mark.parametrize("packing", [Packing.AUTHCRYPT, Packing.ANONCRYPT])
@pytest.mark.parametrize("member", ["ciphertext", "tag", "iv"])
async def test_a_tampered_envelope_is_refused(packing: Packing, member: str) -> None:
    raw = await ALICE.pack(BID, BOB.did, packing)
    tampered = envelope(raw, lambda jwe: jwe.update({member: flip(jwe[member])}))
    refused = await refusal(tampered)
    assert (refused.reason, refused.message) == (Reason.TAMPERED, "it cannot be decrypted")


@pytest.mark.asyncio
async def test_a_tampered_signature_or_payload_is_refused() -> None:
    raw = ALICE.sign(BID)
    other = urlsafe_b64encode(json.dumps({**BID, "body": {}}).encode()).rstrip(b"=").decode()
    changed = envelope(raw, lambda jws: jws.update(payload=other))
    assert (await refusal(changed)).reason is Reason.TAMPERED
    flipped = envelope(
        raw,
        lambda jws: jws["signatures"][0].update(signature=flip(jws["signatures"][0]["signature"])),
    )
    assert (await refusal(flipped)).reason is Reason.TAMPERED


@pytest.mark.asyncio
async def test_a_signature_of_no_algorithm_or_another_one_is_refused() -> None:
    for alg in ("none", "HS256", "ES256"):
        head = urlsafe_b64encode(json.dumps({"alg": alg}).encode()).rstrip(b"=").decode()
        jws = json.loads(ALICE.sign(BID))
        jws["signatures"][0]["protected"] = head
        assert (await refusal(json.dumps(jws).encode())).reason is Reason.UNSUPPORTED


@pytest.mark.asyncio
async def test_the_wrong_recipient_is_refused() -> None:
    raw = await ALICE.pack(BID, BOB.did, Packing.AUTHCRYPT)
    error = await refusal(raw, MALLORY)
    assert (error.reason, error.status) == (Reason.NO_KEY, 403)
    # It can be decrypted, but was written for somebody else.
    raw = await ALICE.pack({**BID, "to": [MALLORY.did]}, BOB.did, Packing.AUTHCRYPT)
    error = await refusal(raw)
    assert error.reason is Reason.NO_KEY
    assert "`to` does not name" in error.message


@pytest.mark.asyncio
async def test_a_signed_message_passed_on_to_us_is_refused() -> None:
    passed_on = await MALLORY.pack(
        ALICE.sign({**BID, "to": [MALLORY.did]}), BOB.did, Packing.ANONCRYPT
    )
    assert (await refusal(passed_on)).reason is Reason.NO_KEY
    without = {name: value for name, value in BID.items() if name != "to"}
    passed_on = await MALLORY.pack(ALICE.sign(without), BOB.did, Packing.ANONCRYPT)
    assert (await refusal(passed_on)).reason is Reason.NO_KEY


@pytest.mark.asyncio
async def test_the_wrong_sender_is_refused() -> None:
    for raw in (
        await MALLORY.pack(BID, BOB.did, Packing.AUTHCRYPT),
        MALLORY.sign(BID),
        await ALICE.pack(MALLORY.sign(BID), BOB.did, Packing.AUTHCRYPT),
        await MALLORY.pack(ALICE.sign(BID), BOB.did, Packing.AUTHCRYPT),
        await ALICE.pack({"id": "1", "type": "t", "to": [BOB.did]}, BOB.did, Packing.AUTHCRYPT),
    ):
        error = await refusal(raw)
        assert (error.reason, error.status) == (Reason.WRONG_SENDER, 403)


@pytest.mark.asyncio
async def test_a_signature_by_a_key_that_may_not_sign_is_refused() -> None:
    secret = MALLORY.keys.signing(MALLORY.did)
    assert secret
    raw = sign(json.dumps(BID).encode(), secret.key, f"{ALICE.did}#key-2")
    assert (await refusal(raw)).reason is Reason.UNRESOLVED
    raw = sign(json.dumps(BID).encode(), secret.key, f"{ALICE.did}#key-1")
    assert (await refusal(raw)).reason is Reason.TAMPERED
    raw = sign(json.dumps(BID).encode(), secret.key, "did:web:example.org#key-1")
    assert (await refusal(raw)).reason is Reason.UNRESOLVED


@pytest.mark.asyncio
async def test_envelopes_are_not_opened_without_end() -> None:
    raw = json.dumps(BID).encode()
    for _ in range(4):
        raw = await ALICE.pack(raw, BOB.did, Packing.ANONCRYPT)
    assert (await refusal(raw)).reason is Reason.UNSUPPORTED
    inside = ALICE.sign(json.loads(await ALICE.pack(BID, BOB.did, Packing.ANONCRYPT)))
    assert (await refusal(inside)).reason is Reason.UNSUPPORTED


@pytest.mark.asyncio
async def test_a_receiver_without_keys_says_so() -> None:
    keyless = EnvelopeUnpacker(SecretKeys(), DidDocuments())
    raw = await ALICE.pack(BID, BOB.did, Packing.AUTHCRYPT)
    with pytest.raises(MessageRefusedError, match="no keys configured"):
        await keyless.unpack(raw)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "change",
    [
        {"protected": "e30"},
        {"protected": "!"},
        {"protected": 5},
        {"protected": "W10"},
        {"recipients": []},
        {"recipients": {}},
        {"recipients": [{"header": {}}]},
        {"recipients": [{"header": {"kid": 5}, "encrypted_key": ""}]},
        {"recipients": [{"header": {"kid": "did:x:y#1"}, "encrypted_key": ""}] * 200},
        {"ciphertext": None},
        {"iv": "é"},
        {"aad": "AAAA"},
    ],
)
async def test_hostile_envelopes_are_refused_and_nothing_else(change: dict[str, Any]) -> None:
    raw = await ALICE.pack(BID, BOB.did, Packing.AUTHCRYPT)
    await refusal(envelope(raw, lambda jwe: jwe.update(change)))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "jws",
    [
        {"signatures": []},
        {"signatures": {}},
        {"signatures": [5]},
        {"signatures": [{}]},
        {"signatures": [{"protected": "e30", "signature": "AA", "header": {"kid": "x"}}]},
        {"signatures": [{"protected": 5, "signature": "AA"}]},
        {"signatures": [{"protected": "e30", "signature": "AA", "header": 5}]},
        {"payload": 5},
        {"signatures": [{}] * 9},
    ],
)
async def test_hostile_signatures_are_refused_and_nothing_else(jws: dict[str, Any]) -> None:
    await refusal(envelope(ALICE.sign(BID), lambda message: message.update(jws)))


@pytest.mark.asyncio
async def test_keys_of_other_curves_by_a_given_document() -> None:
    key = Key.generate(KeyAlg.P256)
    did = "did:ex:p256"
    document = {
        "@context": ["https://www.w3.org/ns/did/v1"],
        "id": did,
        "verificationMethod": [
            {
                "id": f"{did}#1",
                "type": "JsonWebKey2020",
                "controller": did,
                "publicKeyJwk": json.loads(key.get_jwk_public()),
            }
        ],
        "authentication": [f"{did}#1"],
        "keyAgreement": [f"{did}#1"],
    }
    documents = DidDocuments([document])
    keys = SecretKeys([{**json.loads(key.get_jwk_secret()), "kid": f"{did}#1"}])
    message = json.dumps({**BID, "from": did, "to": [did]}).encode()
    for packing in Packing:
        raw, _ = await EnvelopePacker(keys, documents, packing).pack(message, did, did)
        unpacked = await EnvelopeUnpacker(keys, documents).unpack(raw)
        assert unpacked.raw == message


TEXTS = st.sampled_from(
    ["", "e30", "W10", "!", "é", "did:ex:a#1", f"{BOB.did}#key-2", "did:key:z6Mk#x"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["kid", "header", "encrypted_key", "protected", "signature", "alg", "epk", "apv"]
            )
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
ENCODED = JSON.map(
    lambda value: urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
)
MEMBERS = st.sampled_from(
    [
        "protected",
        "unprotected",
        "recipients",
        "ciphertext",
        "iv",
        "tag",
        "aad",
        "encrypted_key",
        "header",
        "payload",
        "signatures",
        "signature",
        "id",
        "type",
        "from",
        "to",
    ]
)


@given(st.dictionaries(MEMBERS, JSON | ENCODED, min_size=1))
def test_nothing_but_a_refusal_or_a_plaintext_comes_of_any_json(message: dict[str, Any]) -> None:
    try:
        unpacked = asyncio.run(BOB.unpacker.unpack(json.dumps(message).encode()))
    except MessageRefusedError:
        return
    assert unpacked.form is Form.PLAIN
    assert unpacked.authors == []
