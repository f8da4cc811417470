"""Resolves a DID to its keys and its service endpoint: did:key, did:peer 2 and 4, and DIDs whose
documents the configuration gives. Uses no network.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from aries_askar import Key, KeyAlg
from did_peer_2 import resolve as resolve_peer_2
from did_peer_4 import resolve as resolve_peer_4
from didcomm_messaging.crypto.backend.askar import AskarKey
from didcomm_messaging.multiformats import multibase, multicodec
from didcomm_messaging.resolver import DIDResolver
from pydid import VerificationMethod

from instep_didcomm.identity.key_names import (
    AmbiguousNameError,
    Relation,
    find_by_value,
    fits,
    multikey_of,
)
from instep_didcomm.problems import MessageRefusedError, Reason

__all__ = ["DidDocuments", "PublicKey", "Relation"]

_LONGEST_DID: Final = 2_048
"""The time to decode base58 grows with the square of the length."""
_MOST_ENTRIES: Final = 20
"""Most keys and services of a document, each: anybody can make a DID with more, and send it."""
_METHODS_CACHED: Final = 512
_SHOWN: Final = 120

_RELATIONS: Final[Mapping[Relation, str]] = {
    "key_agreement": "keyAgreement",
    "authentication": "authentication",
}
_LISTS: Final = (*_RELATIONS.values(), "verificationMethod", "service")


class PublicKey(AskarKey):  # type: ignore[misc]
    """A public key of any curve; the library's own class accepts only keys with a multikey name."""

    def __init__(self, key: Key, kid: str) -> None:
        self.key = key
        self._kid = str(kid)


class DidDocuments(DIDResolver):  # type: ignore[misc]
    """Resolves DIDs without I/O.

    A DID arrives before its sender is proven, so it is bounded in length and in the number of its
    keys, and only the key that is needed is parsed. The last keys are cached, and so is a key that
    cannot be found.

    Args:
        given: DID documents from the configuration, each with its ``id``. They take precedence.
    """

    def __init__(self, given: Iterable[Mapping[str, Any]] = ()) -> None:
        self._given = {document["id"]: dict(document) for document in given}
        self._find = lru_cache(maxsize=_METHODS_CACHED)(self._find_method)

    def __repr__(self) -> str:
        return f"<DidDocuments, {len(self._given)} given>"

    async def is_resolvable(self, did: str) -> bool:
        return did in self._given or did.startswith(("did:key:", "did:peer:2", "did:peer:4"))

    async def resolve(self, did: str) -> dict[str, Any]:
        """The DID document. Raises `MessageRefusedError`."""
        return self._document(did)

    async def resolve_and_dereference_verification_method(self, did_url: str) -> VerificationMethod:
        """Called by the library: the key of a sender or of a recipient of an encrypted message."""
        return await self.verification_method(did_url, "key_agreement")

    async def verification_method(self, kid: str, relation: Relation) -> VerificationMethod:
        """The verification method with this key id, if the DID document allows its use for
        `relation`. Where no key has this id, it may be the beginning of a key's value: see
        `instep_didcomm.identity.key_names`.

        Raises `MessageRefusedError`.
        """
        if len(kid) > _LONGEST_DID:  # before anything of it is kept
            raise _unresolved(kid, f"has more than {_LONGEST_DID:,} characters")
        if kid.startswith("#"):
            raise _unresolved(kid, "names a key without its DID: write did:…#…")
        found = self._find(kid, relation)
        if isinstance(found, str):
            raise _unresolved(kid, found)
        return found

    async def agreement_kid(self, did: str) -> str:
        """The key id with which messages to this DID are encrypted: the first that its document
        names. Raises `MessageRefusedError`.
        """
        document = self._document(did)
        for entry in _entries(document, _RELATIONS["key_agreement"]):
            kid = _kid(entry, did)
            if kid:
                return kid
        raise _unresolved(did, "has no key for key agreement")

    async def endpoint(self, did: str) -> str:
        """The http(s) endpoint of the DID document; empty if it states none, or one behind a
        mediator. Raises `MessageRefusedError`.
        """
        for service in _entries(self._document(did), "service"):
            if not isinstance(service, dict) or service.get("type") != "DIDCommMessaging":
                continue
            stated = service.get("serviceEndpoint")
            for place in stated if isinstance(stated, list) else [stated]:
                where = place if isinstance(place, dict) else {**service, "uri": place}
                uri = str(where.get("uri"))
                if uri.startswith(("http://", "https://")) and not where.get("routingKeys"):
                    return uri
        return ""

    def _document(self, did: str) -> dict[str, Any]:
        if did in self._given:
            return self._given[did]
        if len(did) > _LONGEST_DID:
            raise _unresolved(did, f"has more than {_LONGEST_DID:,} characters")
        if did.count(".") > 2 * _MOST_ENTRIES:  # did:peer:2 has one for each key and service
            raise _unresolved(did, f"has more than {_MOST_ENTRIES} keys or services")
        try:
            if did.startswith("did:peer:2"):
                document = dict(resolve_peer_2(did))
            elif did.startswith("did:peer:4"):
                document = dict(resolve_peer_4(did))
            elif did.startswith("did:key:"):
                document = _key_document(did)
            else:
                document = {}
        except Exception:  # noqa: BLE001 - the libraries raise anything for a hostile DID
            raise _unresolved(did, "is not well formed") from None
        if not document:
            raise _unresolved(did, "is of a method that is not known here; give its document")
        if any(len(_entries(document, name)) > _MOST_ENTRIES for name in _LISTS):
            raise _unresolved(did, f"has more than {_MOST_ENTRIES} keys or services")
        return document

    def _find_method(self, kid: str, relation: Relation) -> VerificationMethod | str:
        """The verification method, or why there is none."""
        did, _, fragment = kid.partition("#")
        try:
            document = self._document(did)
        except MessageRefusedError as error:
            return error.message.removeprefix(f"{did[:_SHOWN]} ")
        allowed = _entries(document, _RELATIONS[relation])
        methods = [
            entry
            for entry in (*allowed, *_entries(document, "verificationMethod"))
            if isinstance(entry, dict)
        ]
        ids = [_kid(entry, did) for entry in allowed]
        if kid in ids:
            entry = next((one for one in methods if _kid(one, did) == kid), None)
        elif any(_kid(one, did) == kid for one in methods):
            entry = None
        else:
            try:
                entry = find_by_value(fragment, _by_value(methods, ids, did, relation))
            except AmbiguousNameError as error:
                return str(error)
        if entry is None:
            if kid in ids:
                return "is not in the document of its DID"
            return f"is no key for {relation.replace('_', ' ')}"
        try:
            return VerificationMethod.deserialize({**entry, "id": kid})
        except Exception:  # noqa: BLE001 - the library raises anything here
            return "has no readable key"


def _by_value(
    methods: Iterable[dict[str, Any]], ids: Iterable[str], did: str, relation: Relation
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The methods that are allowed and are of this DID itself, each with its multibase value."""
    own = {id for id in ids if id.startswith(f"{did}#")}
    for entry in methods:
        if _kid(entry, did) in own and fits(value := _multikey(entry, did), relation):
            yield value, entry


def _multikey(entry: dict[str, Any], did: str) -> str:
    """The multibase value of a method, whatever form it has there; empty where it has none."""
    stated = entry.get("publicKeyMultibase")
    if isinstance(stated, str):
        return stated
    try:
        method = VerificationMethod.deserialize({**entry, "id": _kid(entry, did)})
        return multikey_of(PublicKey.from_verification_method(method).key)
    except Exception:  # noqa: BLE001 - the libraries raise anything here
        return ""


def _entries(document: Mapping[str, Any], name: str) -> list[Any]:
    entries = document.get(name)
    return entries if isinstance(entries, list) else []


def _kid(entry: object, did: str) -> str:
    """The absolute key id of a method, or of a reference to one; empty where it has none."""
    id = entry.get("id") if isinstance(entry, dict) else entry
    if not isinstance(id, str):
        return ""
    return f"{did}{id}" if id.startswith("#") else id


def _unresolved(did: str, what: str) -> MessageRefusedError:
    return MessageRefusedError(Reason.UNRESOLVED, f"{did[:_SHOWN]} {what}", did=did[:200])


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
