"""Signs and verifies JWS envelopes, which didcomm-messaging leaves out (DIDComm 2.1, "Signed";
RFC 7515). The signatures themselves are Askar's.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, Final

import msgspec
from aries_askar import AskarError, Key, KeyAlg

from instep_didcomm.identity.did_documents import DidDocuments, PublicKey
from instep_didcomm.problems import MessageRefusedError, Reason
from instep_didcomm.wire.envelope import MEDIA_TYPES, Form, parse_object

__all__ = ["sign", "verify"]

_ALGORITHMS: Final = {KeyAlg.ED25519: "EdDSA", KeyAlg.P256: "ES256", KeyAlg.K256: "ES256K"}
"""The key determines the algorithm, never the message alone."""
_MAX_SIGNATURES: Final = 8


async def verify(message: dict[str, Any], documents: DidDocuments) -> tuple[bytes, list[str]]:
    """The payload of a JWS whose signatures are all valid, and the key ids of the signers.

    Raises `MessageRefusedError`.
    """
    signatures = message.get("signatures", [message])
    if not isinstance(signatures, list) or not 0 < len(signatures) <= _MAX_SIGNATURES:
        raise MessageRefusedError(Reason.UNREADABLE, "the JWS has no list of signatures")
    payload = message["payload"]
    if not isinstance(payload, str):
        raise MessageRefusedError(Reason.UNREADABLE, "the JWS has no text as payload")
    kids = []
    for signature in signatures:
        try:
            protected = parse_object(_decoded(signature["protected"]))
            header = signature.get("header") or {}
            disjoint = protected.keys().isdisjoint(header)
            kid = {**protected, **header}.get("kid")
            signed = f"{signature['protected']}.{payload}".encode("ascii")
            value = _decoded(signature["signature"])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise MessageRefusedError(Reason.UNREADABLE, "the JWS cannot be read") from None
        if isinstance(kid, str) and kid.startswith("#"):
            kid = _sender_of(payload) + kid
        if not isinstance(kid, str) or not kid.startswith("did:") or "#" not in kid:
            raise MessageRefusedError(Reason.UNREADABLE, "a signature names no key (kid)")
        if not disjoint:
            raise MessageRefusedError(
                Reason.UNREADABLE, "the JWS has a header twice, protected and not (RFC 7515 7.2.1)"
            )
        if "crit" in protected:
            raise MessageRefusedError(Reason.UNSUPPORTED, "the JWS uses crit")
        key = await _public_key(kid, documents)
        # A key of another kind has no algorithm here, and is never one without `alg`.
        if key.algorithm not in _ALGORITHMS or protected.get("alg") != _ALGORITHMS[key.algorithm]:
            raise MessageRefusedError(
                Reason.UNSUPPORTED, f"alg {str(protected.get('alg'))[:20]} does not fit {kid[:200]}"
            )
        if not _is_valid(key, signed, value):
            raise MessageRefusedError(Reason.TAMPERED, f"the signature of {kid[:200]} is wrong")
        kids.append(kid)
    try:
        return _decoded(payload), kids
    except ValueError:
        raise MessageRefusedError(Reason.UNREADABLE, "the payload is no base64url") from None


def sign(plaintext: bytes, key: Key, kid: str) -> bytes:
    """Sign the plaintext with this secret key; returns a JWS."""
    protected = {"typ": MEDIA_TYPES[Form.SIGNED], "alg": _ALGORITHMS[key.algorithm]}
    head, payload = _encoded(msgspec.json.encode(protected)), _encoded(plaintext)
    signature = _encoded(key.sign_message(f"{head}.{payload}".encode()))
    member = {"protected": head, "signature": signature, "header": {"kid": kid}}
    return msgspec.json.encode({"payload": payload, "signatures": [member]})


def _sender_of(payload: str) -> str:
    """The DID that the signed message states as its sender: a kid without a DID is a key of it."""
    try:
        sender = parse_object(_decoded(payload)).get("from")
    except ValueError:
        raise MessageRefusedError(Reason.UNREADABLE, "the payload is no base64url") from None
    return sender.partition("#")[0] if isinstance(sender, str) else ""


async def _public_key(kid: str, documents: DidDocuments) -> Key:
    verification_method = await documents.verification_method(kid, "authentication")
    try:
        return PublicKey.from_verification_method(verification_method).key
    except (AskarError, ValueError):
        raise MessageRefusedError(
            Reason.UNRESOLVED, f"the key {kid[:200]} cannot be read"
        ) from None


def _is_valid(key: Key, signed: bytes, value: bytes) -> bool:
    try:
        return bool(key.verify_signature(signed, value))
    except AskarError:
        return False


def _decoded(text: str) -> bytes:
    return urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))


def _encoded(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()
