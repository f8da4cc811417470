"""Unpacks an envelope to its plaintext, and verifies sender and recipient.

didcomm-messaging decrypts. This module adds what it leaves out: JWS, nesting, the order of the key
ids in ``apv``, and the addressing consistency of DIDComm 2.1: `from` is the owner of the key that
encrypted or signed, `to` names the owner of the key that decrypts.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from typing import Any, Final, Protocol

import msgspec
from didcomm_messaging.crypto.backend.askar import AskarCryptoService
from didcomm_messaging.crypto.base import CryptoServiceError
from didcomm_messaging.packaging import PackagingService, PackagingServiceError
from pydid import VerificationMethod

from instep_didcomm.identity.did_documents import DidDocuments, PublicKey
from instep_didcomm.identity.keys import SecretKeys
from instep_didcomm.problems import MessageRefusedError, Reason
from instep_didcomm.wire.envelope import Form, form_of, parse_object
from instep_didcomm.wire.json_bounds import check_json
from instep_didcomm.wire.signing import verify

__all__ = ["Crypto", "EnvelopeUnpacker", "Unpacked", "Unpacker"]

_MAX_LAYERS: Final = 3
"""anoncrypt(authcrypt(signed)) is the deepest nesting of DIDComm."""
_MAX_RECIPIENTS: Final = 100
_MAX_PROTECTED_CHARS: Final = 64 * 1024


_UNDECRYPTED: Final = "it cannot be decrypted"
"""The same for all reasons: what fails first, and the library's words for it, help who guesses."""


class Crypto(AskarCryptoService):  # type: ignore[misc]
    """The library's cryptography, extended to keys of any curve that Askar supports."""

    @classmethod
    def verification_method_to_public_key(cls, vm: VerificationMethod) -> PublicKey:
        key: PublicKey = PublicKey.from_verification_method(vm)
        return key


class Unpacked(msgspec.Struct, kw_only=True, gc=False):
    """A plaintext, and who is proven by its envelopes."""

    raw: bytes = b""
    """The plaintext as it was in the envelope."""
    message: dict[str, Any] = {}
    form: Form
    """The form of the outermost envelope."""
    authors: list[str] = []
    """DIDs whose keys authcrypted or signed the message."""
    holders: list[str] = []
    """Our DIDs whose keys decrypted the message."""
    signed: bool = False


class Unpacker(Protocol):
    """Opens envelopes."""

    async def unpack(self, raw: bytes) -> Unpacked:
        """Unpack an envelope to its plaintext and check its addressing.

        Raises `MessageRefusedError` with the reason.
        """
        ...


class EnvelopeUnpacker:
    """Unpacks all kinds of DIDComm envelopes with our keys."""

    def __init__(self, keys: SecretKeys, documents: DidDocuments) -> None:
        self._keys = keys
        self._documents = documents
        self._crypto = Crypto()
        self._packaging = PackagingService()

    async def unpack(self, raw: bytes) -> Unpacked:
        message = parse_object(raw)
        unpacked = Unpacked(form=form_of(message))
        for _ in range(_MAX_LAYERS + 1):
            form = form_of(message)
            if form is Form.PLAIN:
                unpacked.raw, unpacked.message = raw, message
                _check_addresses(unpacked)
                return unpacked
            if unpacked.signed:
                raise MessageRefusedError(
                    Reason.UNSUPPORTED, f"a signed message has {form!s} content: sign first"
                )
            if form is Form.SIGNED:
                raw, kids = await verify(message, self._documents)
                unpacked.authors += [kid.partition("#")[0] for kid in kids]
                unpacked.signed = True
            else:
                raw = await self._decrypt(message, unpacked)
            message = parse_object(raw)
        raise MessageRefusedError(
            Reason.UNSUPPORTED, f"more than {_MAX_LAYERS} envelopes in each other"
        )

    async def _decrypt(self, message: dict[str, Any], unpacked: Unpacked) -> bytes:
        if not self._keys.dids:
            raise MessageRefusedError(
                Reason.NO_KEY, "encrypted, and this receiver has no keys configured"
            )
        message = _ordered(message)
        _check_protected(message.get("protected"))
        keys = self._keys.recipient(_kids(message))
        try:
            opened, metadata = await self._packaging.unpack(
                self._crypto, self._documents, keys, msgspec.json.encode(message)
            )
        except MessageRefusedError:
            raise
        except PackagingServiceError as error:
            reason = Reason.NO_KEY if "recipient key" in str(error) else Reason.TAMPERED
            raise MessageRefusedError(reason, _UNDECRYPTED) from None
        except CryptoServiceError as error:
            reason = Reason.UNSUPPORTED if "nsupported" in str(error) else Reason.TAMPERED
            raise MessageRefusedError(reason, _UNDECRYPTED) from None
        except Exception:  # noqa: BLE001 - the library raises anything for a hostile JWE
            raise MessageRefusedError(Reason.UNREADABLE, "the JWE cannot be read") from None
        protected = metadata.wrapper.protected
        if "crit" in protected or "zip" in protected:
            raise MessageRefusedError(Reason.UNSUPPORTED, "the JWE uses crit or zip")
        unpacked.holders.append(metadata.recip_key.did)
        if metadata.method == "ECDH-1PU":
            unpacked.authors.append(str(metadata.sender_kid).partition("#")[0])
        return bytes(opened)


def _ordered(message: dict[str, Any]) -> dict[str, Any]:
    """The JWE with its recipients sorted by key id, the order from which ``apv`` is computed."""
    recipients = message.get("recipients")
    if not isinstance(recipients, list):
        return message
    if len(recipients) > _MAX_RECIPIENTS:
        raise MessageRefusedError(Reason.UNSUPPORTED, f"more than {_MAX_RECIPIENTS} recipients")
    try:
        ordered = sorted(recipients, key=lambda recipient: str(recipient["header"]["kid"]))
    except (KeyError, TypeError):
        raise MessageRefusedError(Reason.UNREADABLE, "a recipient of the JWE has no kid") from None
    return {**message, "recipients": ordered}


def _check_protected(header: object) -> None:
    """Check the protected header, which the library decodes by itself. Raises
    `MessageRefusedError`.
    """
    unreadable = MessageRefusedError(
        Reason.UNREADABLE, "the protected header of the JWE cannot be read"
    )
    if not isinstance(header, str) or len(header) > _MAX_PROTECTED_CHARS:
        raise unreadable
    try:
        check_json(urlsafe_b64decode(header.encode("ascii") + b"=" * (-len(header) % 4)))
    except ValueError:
        raise unreadable from None


def _kids(message: dict[str, Any]) -> list[str]:
    """The key ids of the recipients, of a JWE that `_ordered` has checked."""
    recipients = message.get("recipients")
    return [str(one["header"]["kid"]) for one in recipients] if isinstance(recipients, list) else []


def _check_addresses(unpacked: Unpacked) -> None:
    """Message Layer Addressing Consistency (DIDComm 2.1)."""
    stated = unpacked.message.get("from")
    sender = stated.partition("#")[0] if isinstance(stated, str) else ""
    for author in unpacked.authors:
        if author != sender:
            raise MessageRefusedError(
                Reason.WRONG_SENDER,
                f"from is {sender[:120] or 'missing'}, the key is of {author[:120]}",
            )
    to = unpacked.message.get("to")
    if to is None and not (unpacked.signed and unpacked.holders):
        return
    # Without `to`, a recipient of a signed message could forward it to us as if it were meant for
    # us.
    named = [to] if isinstance(to, str) else to if isinstance(to, list) else []
    dids = {did.partition("#")[0] for did in named if isinstance(did, str)}
    for holder in unpacked.holders:
        if holder not in dids:
            raise MessageRefusedError(
                Reason.NO_KEY, f"encrypted for {holder[:120]}, which `to` does not name"
            )
