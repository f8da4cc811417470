"""Packs our plaintext messages into envelopes."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from didcomm_messaging.crypto.base import CryptoServiceError
from didcomm_messaging.packaging import PackagingService, PackagingServiceError

from instep.errors import SourceError
from instep_didcomm.identity.did_documents import DidDocuments
from instep_didcomm.identity.keys import SecretKeys
from instep_didcomm.problems import MessageRefusedError
from instep_didcomm.wire.envelope import Form
from instep_didcomm.wire.signing import sign
from instep_didcomm.wire.unpack import Crypto

__all__ = ["EnvelopePacker", "Packer", "Packing"]


class Packing(StrEnum):
    """How our messages are protected."""

    AUTHCRYPT = "authcrypt"
    """Encrypted; the recipient can verify the sender."""
    ANONCRYPT = "anoncrypt"
    """Encrypted without a sender's key: the recipient cannot verify the sender."""
    SIGNED = "signed"
    PLAIN = "plain"


class Packer(Protocol):
    """Makes envelopes."""

    async def pack(self, plaintext: bytes, sender: str, to: str) -> tuple[bytes, Form]:
        """The envelope for one recipient. Raises `SourceError`."""
        ...


class EnvelopePacker:
    """Makes envelopes of one packing with our keys."""

    def __init__(self, keys: SecretKeys, documents: DidDocuments, packing: Packing) -> None:
        self._keys = keys
        self._documents = documents
        self._packing = packing
        self._crypto = Crypto()
        self._packaging = PackagingService()

    async def pack(self, plaintext: bytes, sender: str, to: str) -> tuple[bytes, Form]:
        packing = self._packing
        if packing is Packing.PLAIN:
            return plaintext, Form.PLAIN
        if packing is Packing.SIGNED:
            secret = self._keys.signing(sender)
            if secret is None:
                raise SourceError("no key of ours can sign", where=sender, hint="give secrets")
            return sign(plaintext, secret.key, secret.kid), Form.SIGNED
        try:
            # With key ids the library parses two keys; with DIDs it parses whole documents.
            packed = await self._packaging.pack(
                self._crypto,
                self._documents,
                self._keys,
                plaintext,
                [await self._documents.agreement_kid(to)],
                await self._documents.agreement_kid(sender)
                if packing is Packing.AUTHCRYPT
                else None,
            )
        except (
            PackagingServiceError,
            CryptoServiceError,
            MessageRefusedError,
            ValueError,
        ) as error:
            raise SourceError(
                f"cannot be encrypted: {error}", where=to[:120], hint="check its DID document"
            ) from None
        return bytes(packed), Form.ENCRYPTED
