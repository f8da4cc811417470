"""Resolves a DID to its keys and its service endpoint: did:key, did:peer 2 and 4, and DIDs whose
documents the configuration gives. Uses no network.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec
from aries_askar import Key, KeyAlg
from did_peer_2 import resolve as resolve_peer_2
from did_peer_4 import resolve as resolve_peer_4
from didcomm_messaging.crypto.backend.askar import AskarKey
from didcomm_messaging.multiformats import multibase, multicodec
from didcomm_messaging.resolver import DIDResolver
from pydid import DIDDocument, DIDUrl, VerificationMethod

from instep_didcomm.problems import MessageRefusedError, Reason

__all__ = ["DidDocuments", "PublicKey", "Relation"]

_LONGEST_DID: Final = 8192
"""Bounds the memory for a DID, and its decoding, whose time grows with the square of the length."""

Relation = Literal["key_agreement", "authentication"]
"""What a key of a DID document may be used for."""


class PublicKey(AskarKey):  # type: ignore[misc]
    """A public key of any curve; the library's own class accepts only keys with a multikey name."""

    def __init__(self, key: Key, kid: str) -> None:
        self.key = key
        self._kid = str(kid)


class DidDocuments(DIDResolver):  # type: ignore[misc]
    """Resolves DIDs without I/O; caches the last thousand.

    Args:
        given: DID documents from the configuration, each with its ``id``. They take precedence.
    """

    def __init__(self, given: Iterable[Mapping[str, Any]] = ()) -> None:
        self._given = {document["id"]: dict(document) for document in given}
        self._parsed = lru_cache(maxsize=1000)(self._parse)

    def __repr__(self) -> str:
        return f"<DidDocuments, {len(self._given)} given>"

    async def is_resolvable(self, did: str) -> bool:
        return did in self._given or did.startswith(("did:key:", "did:peer:2", "did:peer:4"))

    async def resolve(self, did: str) -> dict[str, Any]:
        """The DID document. Raises `MessageRefusedError`."""
        if did in self._given:
            return self._given[did]
        if len(did) > _LONGEST_DID:
            raise _unresolved(did, f"has more than {_LONGEST_DID:,} characters")
        try:
            if did.startswith("did:peer:2"):
                return dict(resolve_peer_2(did))
            if did.startswith("did:peer:4"):
                return dict(resolve_peer_4(did))
            if did.startswith("did:key:"):
                return _key_document(did)
        except Exception as error:  # noqa: BLE001 - the libraries raise anything for a hostile DID
            raise _unresolved(did, f"is not well formed ({type(error).__name__})") from None
        raise _unresolved(did, "is of a method that is not known here; give its document")

    async def resolve_and_parse(self, did: str) -> DIDDocument:
        return self._parsed(msgspec.json.encode(await self.resolve(did)), did)

    async def resolve_and_dereference_verification_method(self, did_url: str) -> VerificationMethod:
        """Called by the library: the key with which a sender has encrypted."""
        return await self.verification_method(did_url, "key_agreement")

    async def verification_method(self, kid: str, relation: Relation) -> VerificationMethod:
        """The verification method with this key id, if the DID document allows its use for
        `relation`.

        Raises `MessageRefusedError`.
        """
        document = await self.resolve_and_parse(kid.partition("#")[0])
        for entry in getattr(document, relation) or ():
            verification_method = (
                document.dereference(entry) if isinstance(entry, DIDUrl) else entry
            )
            if (
                isinstance(verification_method, VerificationMethod)
                and _absolute(verification_method) == kid
            ):
                return verification_method
        raise _unresolved(kid, f"is no key for {relation.replace('_', ' ')}")

    async def endpoint(self, did: str) -> str:
        """The http(s) endpoint of the DID document; empty if it states none, or one behind a
        mediator. Raises `MessageRefusedError`.
        """
        document = await self.resolve(did)
        services = document.get("service") or ()
        for service in services if isinstance(services, list) else ():
            if not isinstance(service, dict) or service.get("type") != "DIDCommMessaging":
                continue
            stated = service.get("serviceEndpoint")
            for place in stated if isinstance(stated, list) else [stated]:
                where = place if isinstance(place, dict) else {**service, "uri": place}
                uri = str(where.get("uri"))
                if uri.startswith(("http://", "https://")) and not where.get("routingKeys"):
                    return uri
        return ""

    def _parse(self, document: bytes, did: str) -> DIDDocument:
        try:
            return DIDDocument.deserialize(msgspec.json.decode(document))
        except Exception as error:  # noqa: BLE001 - the library raises anything for a bad document
            raise _unresolved(did, f"has no readable document ({type(error).__name__})") from None


def _absolute(verification_method: VerificationMethod) -> str:
    return str(
        verification_method.id
        if verification_method.id.did
        else verification_method.id.as_absolute(verification_method.controller)
    )


def _unresolved(did: str, what: str) -> MessageRefusedError:
    return MessageRefusedError(Reason.UNRESOLVED, f"{did[:120]} {what}", did=did[:200])


def _key_document(did: str) -> dict[str, Any]:
    """did:key for Ed25519 (which agrees on keys by its X25519 form) and X25519."""
    name = did.removeprefix("did:key:")
    codec, raw = multicodec.unwrap(multibase.decode(name))
    signs = codec.name == "ed25519-pub"
    if not signs and codec.name != "x25519-pub":
        raise ValueError(codec.name)
    agreement = name
    if signs:
        key = Key.from_public_bytes(KeyAlg.ED25519, raw).convert_key(KeyAlg.X25519)
        wrapped = multicodec.wrap(multicodec.multicodec("x25519-pub"), key.get_public_bytes())
        agreement = multibase.encode(wrapped, "base58btc")
    keys = dict.fromkeys((name, agreement))
    return {
        "@context": ["https://www.w3.org/ns/did/v1", "https://w3id.org/security/multikey/v1"],
        "id": did,
        "verificationMethod": [
            {
                "id": f"{did}#{key}",
                "type": "Multikey",
                "controller": did,
                "publicKeyMultibase": key,
            }
            for key in keys
        ],
        "authentication": [f"{did}#{name}"] if signs else [],
        "keyAgreement": [f"{did}#{agreement}"],
    }
