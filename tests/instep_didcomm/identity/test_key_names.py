"""A key is found by the beginning of its multibase value where no key has the name."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import pytest
from aries_askar import Key, KeyAlg
from did_peer_4 import encode as peer_4
from hypothesis import given
from hypothesis import strategies as st

from instep_didcomm.identity.did_documents import DidDocuments, PublicKey
from instep_didcomm.identity.key_names import (
    AmbiguousNameError,
    Relation,
    find_by_value,
    multikey_of,
)
from instep_didcomm.identity.keys import SecretKeys, new_identity
from instep_didcomm.problems import MessageRefusedError, Reason
from instep_didcomm.wire.pack import EnvelopePacker, Packing
from instep_didcomm.wire.signing import sign
from instep_didcomm.wire.unpack import EnvelopeUnpacker
from tests.instep_didcomm.listener_kit import plain

CURVES = [KeyAlg.X25519, KeyAlg.ED25519, KeyAlg.P256, KeyAlg.K256]


def names(multikey: str) -> list[str]:
    """How a key was named, with and without the z."""
    return [multikey[1:9], multikey[:9], multikey[1:], multikey]


async def is_refused(documents: DidDocuments, kid: str, relation: Relation) -> str:
    with pytest.raises(MessageRefusedError) as caught:
        await documents.verification_method(kid, relation)
    assert caught.value.reason is Reason.UNRESOLVED
    return caught.value.message


async def check(documents: DidDocuments, did: str, agreement: str, signing: str) -> None:
    for value, relation, other in (
        (agreement, "key_agreement", "authentication"),
        (signing, "authentication", "key_agreement"),
    ):
        for name in names(value):
            method = await documents.verification_method(f"{did}#{name}", relation)  # type: ignore[arg-type]
            assert str(method.id) == f"{did}#{name}"
            found = documents_key(method)
            assert found == value
            await is_refused(documents, f"{did}#{name}", other)  # type: ignore[arg-type]
    for name in ("", "6", "6LS", agreement[1:6], "6LSxxxxx", agreement[2:10], f"{agreement}x"):
        await is_refused(documents, f"{did}#{name}", "key_agreement")


def documents_key(method: Any) -> str:
    return multikey_of(PublicKey.from_verification_method(method).key)


def made(*curves: KeyAlg) -> list[Key]:
    return [Key.generate(curve) for curve in curves]


@pytest.mark.asyncio
async def test_did_peer_2() -> None:
    agreement, signing = map(multikey_of, made(KeyAlg.X25519, KeyAlg.ED25519))
    did = f"did:peer:2.E{agreement}.V{signing}"
    await check(DidDocuments(), did, agreement, signing)


@pytest.mark.asyncio
async def test_did_peer_4() -> None:
    agreement, signing = map(multikey_of, made(KeyAlg.X25519, KeyAlg.ED25519))
    did = peer_4(
        {
            "@context": ["https://www.w3.org/ns/did/v1"],
            "verificationMethod": [
                {"id": "#key-0", "type": "Multikey", "publicKeyMultibase": agreement},
                {"id": "#key-1", "type": "Multikey", "publicKeyMultibase": signing},
            ],
            "keyAgreement": ["#key-0"],
            "authentication": ["#key-1"],
        }
    )
    await check(DidDocuments(), did, agreement, signing)


@pytest.mark.asyncio
async def test_did_key() -> None:
    (key,) = made(KeyAlg.ED25519)
    signing, agreement = multikey_of(key), multikey_of(key.convert_key(KeyAlg.X25519))
    await check(DidDocuments(), f"did:key:{signing}", agreement, signing)


@pytest.mark.asyncio
@pytest.mark.parametrize("relative", [True, False])
@pytest.mark.parametrize("embedded", [True, False])
async def test_a_document_with_jwks_alone(relative: bool, embedded: bool) -> None:
    did, keys = "did:web:example.org", made(*CURVES)
    start = "" if relative else did
    methods = [
        {
            "id": f"{start}#k{number}",
            "type": "JsonWebKey2020",
            "controller": did,
            "publicKeyJwk": json.loads(key.get_jwk_public()),
        }
        for number, key in enumerate(keys)
    ]
    agree, signs = [methods[0], methods[2]], [methods[1], methods[3]]
    document: dict[str, Any] = {"id": did, "keyAgreement": agree, "authentication": signs}
    if not embedded:
        document = {
            "id": did,
            "verificationMethod": methods,
            "keyAgreement": [one["id"] for one in agree],
            "authentication": [one["id"] for one in signs],
        }
    values = [multikey_of(key) for key in keys]
    documents = DidDocuments([document])
    await check(documents, did, values[0], values[1])
    for name in names(values[2]):
        assert await documents.verification_method(f"{did}#{name}", "key_agreement")
    for name in names(values[3]):
        assert await documents.verification_method(f"{did}#{name}", "authentication")


def method(id: str, value: str) -> dict[str, str]:
    return {"id": id, "type": "Multikey", "controller": "did:ex:a", "publicKeyMultibase": value}


@pytest.mark.asyncio
async def test_a_name_that_several_keys_have_is_refused() -> None:
    agree = [method("#a", "z6LSabcdef1"), method("#b", "z6LSabcdef2"), method("#c", "z6LSabcdef1")]
    documents = DidDocuments([{"id": "did:ex:a", "keyAgreement": agree}])
    said = await is_refused(documents, "did:ex:a#6LSabcde", "key_agreement")
    assert said == "did:ex:a#6LSabcde names 2 keys: their values begin alike"
    # The same key under two ids is one key.
    assert await documents.verification_method("did:ex:a#6LSabcdef1", "key_agreement")


@pytest.mark.asyncio
async def test_a_key_of_another_kind_or_did_is_none() -> None:
    (signing,) = made(KeyAlg.ED25519)
    value = multikey_of(signing)
    foreign = method("did:ex:b#x", "z6LSforeign1")
    document = {
        "id": "did:ex:a",
        # A document may state nonsense: an Ed25519 key agrees on nothing.
        "keyAgreement": [method("#k", value), foreign, "did:ex:b#x"],
        "verificationMethod": [method("#unused", "z6LSunused11"), foreign],
    }
    documents = DidDocuments([document])
    for name in (value[1:9], "6LSforeign", "6LSunused11", "unused"):
        await is_refused(documents, f"did:ex:a#{name}", "key_agreement")
    await is_refused(documents, "did:ex:c#6LSforeign", "key_agreement")


@pytest.mark.asyncio
async def test_a_name_goes_before_the_beginning_of_a_value() -> None:
    agree = [method("#6LSabcde", "z6LSother11"), method("#b", "z6LSabcdef2")]
    documents = DidDocuments([{"id": "did:ex:a", "keyAgreement": agree}])
    found = await documents.verification_method("did:ex:a#6LSabcde", "key_agreement")
    assert found.public_key_multibase == "z6LSother11"


@pytest.mark.asyncio
async def test_a_name_without_a_did_says_so() -> None:
    said = await is_refused(DidDocuments(), "#6LSbysY2", "key_agreement")
    assert said == "#6LSbysY2 names a key without its DID: write did:…#…"


@given(st.text(max_size=12), st.lists(st.text(max_size=12), max_size=4, unique=True))
def test_the_one_key_is_found_that_begins_so(name: str, values: list[str]) -> None:
    bare = name.removeprefix("z")
    begin = {value for value in values if value.removeprefix("z").startswith(bare)}
    keys = [(value, value) for value in values]
    if len(bare) < 6 or not begin:
        assert find_by_value(name, keys) is None
    elif len(begin) > 1:
        with pytest.raises(AmbiguousNameError):
            find_by_value(name, keys)
    else:
        assert find_by_value(name, keys) in begin


# -- whole envelopes ------------------------------------------------------------------------------


class Party:
    def __init__(self) -> None:
        self.did, secrets = new_identity()
        self.jwks = json.loads(secrets)["keys"]
        self.keys = SecretKeys(self.jwks)
        self.unpacker = EnvelopeUnpacker(self.keys, DidDocuments())
        values = [multikey_of(self.keys._keys[jwk["kid"]].key) for jwk in self.jwks]
        self.signing, self.agreement = values

    @property
    def message(self) -> dict[str, Any]:
        return {**plain(), "from": ALICE.did, "to": [self.did]}


class Renamed(DidDocuments):
    """What a library that names keys by their value reads of a DID."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    async def agreement_kid(self, did: str) -> str:
        return self.name if did == BOB.did else await super().agreement_kid(did)

    async def verification_method(self, kid: str, relation: Relation) -> Any:
        known = await super().agreement_kid(BOB.did) if kid == self.name else kid
        found = await super().verification_method(known, relation)
        return type(found).deserialize({**found.serialize(), "id": kid, "controller": BOB.did})


ALICE, BOB = Party(), Party()
# The keys are made anew in each process, so no name of a test may have one.
WHERE = ["relative", "absolute"]


async def pack(kid: str, packing: Packing = Packing.AUTHCRYPT) -> bytes:
    """A message for Bob that names his key so."""
    packer = EnvelopePacker(ALICE.keys, Renamed(kid), packing)
    return (await packer.pack(json.dumps(BOB.message).encode(), ALICE.did, BOB.did))[0]


@pytest.mark.asyncio
@pytest.mark.parametrize("packing", [Packing.AUTHCRYPT, Packing.ANONCRYPT])
@pytest.mark.parametrize("start", ["", BOB.did], ids=WHERE)
@pytest.mark.parametrize("name", [*names(BOB.agreement), "key-2"], ids=range(5))
async def test_the_recipient_is_found(packing: Packing, start: str, name: str) -> None:
    kid = f"{BOB.did}#{name}"
    raw = json.loads(await pack(kid, packing))
    if not start:
        raw = json.loads(await relative(name, packing))
    unpacked = await BOB.unpacker.unpack(json.dumps(raw).encode())
    assert unpacked.message == BOB.message
    assert unpacked.holders == [BOB.did]


async def relative(name: str, packing: Packing) -> bytes:
    """The same with a kid of the fragment alone."""
    packer = EnvelopePacker(ALICE.keys, DidDocuments(), packing)
    key = BOB.keys._keys[f"{BOB.did}#key-2"].key
    public = PublicKey(Key.from_jwk(key.get_jwk_public()), f"#{name}")
    raw = json.dumps(BOB.message).encode()
    if packing is Packing.ANONCRYPT:
        return bytes(await packer._crypto.ecdh_es_encrypt([public], raw))
    sender = ALICE.keys._keys[f"{ALICE.did}#key-2"]
    return bytes(await packer._crypto.ecdh_1pu_encrypt([public], sender, raw))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "kid",
    [
        f"{ALICE.did}#{BOB.agreement[1:9]}",
        f"{BOB.did}#{ALICE.agreement[1:9]}",
        f"{BOB.did}#{BOB.signing[1:9]}",
        f"{BOB.did}#6LS",
        f"{BOB.did}#",
        f"#{ALICE.agreement[1:9]}",
        "#6",
        "#",
        "",
    ],
    ids=range(9),
)
async def test_what_names_no_key_of_ours_is_refused(kid: str) -> None:
    raw = json.loads(await pack(f"{BOB.did}#key-2"))
    raw["recipients"][0]["header"]["kid"] = kid
    with pytest.raises(MessageRefusedError) as caught:
        await BOB.unpacker.unpack(json.dumps(raw).encode())
    assert caught.value.reason is Reason.NO_KEY
    assert caught.value.message == "it cannot be decrypted"


@pytest.mark.asyncio
async def test_a_fragment_that_two_keys_of_ours_end_with_is_refused() -> None:
    both = SecretKeys([*ALICE.jwks, *BOB.jwks])
    unpacker = EnvelopeUnpacker(both, DidDocuments())
    with pytest.raises(MessageRefusedError, match="the recipient's kid #key-2 names 2 keys"):
        await unpacker.unpack(await relative("key-2", Packing.ANONCRYPT))
    raw = await relative(BOB.agreement[1:9], Packing.ANONCRYPT)
    assert (await unpacker.unpack(raw)).holders == [BOB.did]


@pytest.mark.asyncio
async def test_a_key_id_of_ours_goes_before_other_names() -> None:
    """A message for several: that of another recipient begins as our key does."""
    packer = EnvelopePacker(ALICE.keys, DidDocuments(), Packing.AUTHCRYPT)
    other = PublicKey(Key.generate(KeyAlg.X25519), f"{BOB.did}#{BOB.agreement[1:9]}")
    own = PublicKey(BOB.keys._keys[f"{BOB.did}#key-2"].key, f"{BOB.did}#key-2")
    raw = await packer._crypto.ecdh_1pu_encrypt(
        [other, own], ALICE.keys._keys[f"{ALICE.did}#key-2"], json.dumps(BOB.message).encode()
    )
    assert (await BOB.unpacker.unpack(raw)).message == BOB.message


@pytest.mark.asyncio
@pytest.mark.parametrize("name", names(ALICE.agreement), ids=range(4))
async def test_the_sender_of_an_authcrypt_is_found(name: str) -> None:
    kid = f"{ALICE.did}#{name}"
    keys = SecretKeys([*ALICE.jwks, {**ALICE.jwks[1], "kid": kid}])
    packer = EnvelopePacker(keys, DidDocuments(), Packing.AUTHCRYPT)
    raw = await packer._packaging.pack(
        packer._crypto,
        DidDocuments(),
        keys,
        json.dumps(BOB.message).encode(),
        [f"{BOB.did}#key-2"],
        kid,
    )
    unpacked = await BOB.unpacker.unpack(raw)
    assert (unpacked.message, unpacked.authors) == (BOB.message, [ALICE.did])


@pytest.mark.asyncio
@pytest.mark.parametrize("start", ["", ALICE.did], ids=WHERE)
@pytest.mark.parametrize("name", names(ALICE.signing), ids=range(4))
async def test_the_signer_is_found(start: str, name: str) -> None:
    secret = ALICE.keys.signing(ALICE.did)
    assert secret
    raw = sign(json.dumps(BOB.message).encode(), secret.key, f"{start}#{name}")
    unpacked = await BOB.unpacker.unpack(raw)
    assert (unpacked.message, unpacked.authors) == (BOB.message, [ALICE.did])
    jws = json.loads(raw)
    jws["payload"] = changed(jws["payload"], **{"from": BOB.did})
    with pytest.raises(MessageRefusedError) as caught:
        await BOB.unpacker.unpack(json.dumps(jws).encode())
    # Relative: a key of whom the message names. Absolute: a key of another.
    assert caught.value.reason is (Reason.TAMPERED if start else Reason.UNRESOLVED)


def changed(payload: str, **headers: str) -> str:
    message = {**json.loads(urlsafe_b64decode(payload + "==")), **headers}
    return urlsafe_b64encode(json.dumps(message).encode()).rstrip(b"=").decode()


@pytest.mark.asyncio
async def test_what_we_send_names_keys_as_before() -> None:
    packer = EnvelopePacker(ALICE.keys, DidDocuments(), Packing.AUTHCRYPT)
    raw, _ = await packer.pack(b"{}", ALICE.did, BOB.did)
    jwe = json.loads(raw)
    assert jwe["recipients"][0]["header"]["kid"] == f"{BOB.did}#key-2"
    protected = json.loads(urlsafe_b64decode(jwe["protected"] + "=="))
    assert protected["skid"] == f"{ALICE.did}#key-2"
