"""DIDs are resolved without a network: did:key, did:peer, given documents."""

from __future__ import annotations

import json
import tracemalloc
from base64 import b64encode

import pytest
from pydid import VerificationMethod

from instep_didcomm.identity.did_documents import DidDocuments
from instep_didcomm.identity.keys import new_identity
from instep_didcomm.problems import MessageRefusedError, Reason

# W3C did:key, Ed25519 test vector with its X25519 form.
DID_KEY = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"
AGREEMENT = "z6LSj72tK8brWgZja8NLRwPigth2T9QRiG1uH9oKZuKjdh9p"


@pytest.mark.asyncio
async def test_did_key_has_its_agreement_key() -> None:
    documents = DidDocuments()
    assert await documents.verification_method(f"{DID_KEY}#{AGREEMENT}", "key_agreement")
    assert await documents.verification_method(f"{DID_KEY}#{DID_KEY[8:]}", "authentication")
    with pytest.raises(MessageRefusedError, match="no key for authentication"):
        await documents.verification_method(f"{DID_KEY}#{AGREEMENT}", "authentication")


@pytest.mark.asyncio
async def test_the_endpoint_of_a_new_identity() -> None:
    did, _ = new_identity("https://example.org/didcomm")
    assert await DidDocuments().endpoint(did) == "https://example.org/didcomm"
    silent, _ = new_identity()
    assert await DidDocuments().endpoint(silent) == ""


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "service",
    [
        None,
        5,
        [5],
        [{"type": "DIDCommMessaging"}],
        [{"type": "DIDCommMessaging", "serviceEndpoint": {"uri": "didcomm:transport/queue"}}],
        [
            {
                "type": "DIDCommMessaging",
                "serviceEndpoint": {"uri": "http://m", "routingKeys": ["k"]},
            }
        ],
        [{"type": "LinkedDomains", "serviceEndpoint": "https://example.org"}],
    ],
)
async def test_a_service_that_is_no_endpoint_of_ours_to_use(service: object) -> None:
    assert await DidDocuments([{"id": "did:ex:a", "service": service}]).endpoint("did:ex:a") == ""


@pytest.mark.asyncio
async def test_an_endpoint_may_stand_in_the_service_itself() -> None:
    service = [{"type": "DIDCommMessaging", "serviceEndpoint": "https://example.org/a"}]
    documents = DidDocuments([{"id": "did:ex:a", "service": service}])
    assert await documents.endpoint("did:ex:a") == "https://example.org/a"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "did",
    [
        "did:web:example.org",
        "did:peer:2.Ezbad",
        "did:key:z1",
        "did:peer:4x",
        "did:key:",
        "",
        "did:key:z" + "6" * 9000,
    ],
)
async def test_what_cannot_be_resolved_is_refused(did: str) -> None:
    with pytest.raises(MessageRefusedError) as caught:
        await DidDocuments().verification_method(f"{did}#1", "key_agreement")
    assert caught.value.reason is Reason.UNRESOLVED


@pytest.mark.asyncio
async def test_a_given_document_that_cannot_be_read() -> None:
    for given, text in (
        ({"keyAgreement": 5}, "no key for key agreement"),
        ({"keyAgreement": ["#1"]}, "not in the document"),
        ({"keyAgreement": [{"id": "#1", "type": 5}]}, "no readable key"),
    ):
        documents = DidDocuments([{"id": "did:ex:a", **given}])
        with pytest.raises(MessageRefusedError, match=text):
            await documents.verification_method("did:ex:a#1", "key_agreement")


def peer_did(keys: int, services: int = 0) -> str:
    """A did:peer:2 that nobody can use, and anybody can make."""
    service = b64encode(b'{"t":"dm"}').decode().rstrip("=")
    return "did:peer:2" + ".Vz6Mk2" * keys + f".S{service}" * services


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "did", [peer_did(1_160), peer_did(41), peer_did(21), peer_did(1, 21), peer_did(1) + "2" * 2_048]
)
async def test_a_did_has_a_bounded_number_of_keys_and_services(did: str) -> None:
    with pytest.raises(MessageRefusedError, match="more than") as caught:
        await DidDocuments().verification_method(f"{did}#key-1", "authentication")
    assert caught.value.reason is Reason.UNRESOLVED
    with pytest.raises(MessageRefusedError, match="more than"):
        await DidDocuments().endpoint(did)


@pytest.mark.asyncio
async def test_of_a_did_with_many_keys_one_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    deserialize = VerificationMethod.deserialize

    def counted(value: dict[str, object]) -> VerificationMethod:
        read.append(value["id"])
        return deserialize(value)

    monkeypatch.setattr(VerificationMethod, "deserialize", counted)
    documents, did = DidDocuments(), peer_did(20)
    for _ in range(3):
        await documents.verification_method(f"{did}#key-7", "authentication")
    assert read == [f"{did}#key-7"]


@pytest.mark.asyncio
async def test_the_memory_for_dids_of_strangers_is_bounded() -> None:
    documents = DidDocuments()

    async def look_up(first: int) -> None:
        for number in range(first, first + 600):
            did = f"{peer_did(19)}.Vz6Mk{str(number).replace('0', 'a')}"
            await documents.verification_method(f"{did}#key-20", "authentication")

    await look_up(1_000)
    tracemalloc.start()
    await look_up(2_000)
    try:
        assert tracemalloc.get_traced_memory()[0] < 8 * 1024 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.asyncio
async def test_messages_are_encrypted_for_the_first_agreement_key() -> None:
    documents = DidDocuments()
    assert await documents.agreement_kid(DID_KEY) == f"{DID_KEY}#{AGREEMENT}"
    with pytest.raises(MessageRefusedError, match="no key for key agreement"):
        await documents.agreement_kid(peer_did(1))


def test_an_identity_is_made_anew_each_time() -> None:
    (one, keys), (other, _) = new_identity(), new_identity()
    assert one != other
    assert [key["kid"] for key in json.loads(keys)["keys"]] == [f"{one}#key-1", f"{one}#key-2"]
