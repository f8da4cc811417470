"""DIDs are resolved without a network: did:key, did:peer, given documents."""

from __future__ import annotations

import json

import pytest

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
    with pytest.raises(MessageRefusedError, match="no readable document"):
        await DidDocuments([{"id": "did:ex:a", "keyAgreement": 5}]).verification_method(
            "did:ex:a#1", "key_agreement"
        )


def test_an_identity_is_made_anew_each_time() -> None:
    (one, keys), (other, _) = new_identity(), new_identity()
    assert one != other
    assert [key["kid"] for key in json.loads(keys)["keys"]] == [f"{one}#key-1", f"{one}#key-2"]
