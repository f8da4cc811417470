"""Our secret keys, read from a file or an environment variable, and never shown in a
log or a repr.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from aries_askar import Key, KeyAlg
from did_peer_2 import KeySpec, generate
from didcomm_messaging.crypto.backend.askar import AskarSecretKey
from didcomm_messaging.crypto.base import SecretsManager
from didcomm_messaging.multiformats import multibase, multicodec

from instep.config.secret import warn_if_readable
from instep.errors import ConfigurationError
from instep_didcomm.identity.key_names import (
    AmbiguousNameError,
    find_by_value,
    fits,
    multikey_of,
)
from instep_didcomm.problems import MessageRefusedError, Reason

__all__ = ["SIGNING_ALGORITHMS", "RecipientKey", "RecipientKeys", "SecretKeys", "new_identity"]


SIGNING_ALGORITHMS: Final = (KeyAlg.ED25519, KeyAlg.P256, KeyAlg.K256)
"""The curves for signing; P-256 and secp256k1 serve for key agreement, too."""


class SecretKeys(SecretsManager[AskarSecretKey]):  # type: ignore[misc]
    """Secret keys by key id (``did:…#…``).

    Args:
        jwks: Private JWKs, each with a ``kid`` that is a DID URL. Raises `ConfigurationError`.
        where: The place of the keys in the configuration, for errors.
    """

    def __init__(self, jwks: Iterable[Mapping[str, Any]] = (), where: str = "secrets") -> None:
        self._keys: dict[str, AskarSecretKey] = {}
        for place, entry in enumerate(jwks):
            jwk = dict(entry.get("privateKeyJwk") or entry)
            kid = entry.get("kid") or entry.get("id") or jwk.get("kid")
            if not isinstance(kid, str) or not kid.startswith("did:") or "#" not in kid:
                raise ConfigurationError(
                    "a key without kid", where=f"{where}[{place}]", hint='"kid": "did:…#key-1"'
                )
            if "d" not in jwk:
                raise ConfigurationError("no private key (no d)", where=f"{where}[{place}]")
            try:
                key = Key.from_jwk(msgspec.json.encode(jwk))
            except Exception as error:  # noqa: BLE001 - the library's text could show the key
                raise ConfigurationError(
                    f"no JWK of a known kind ({type(error).__name__})", where=f"{where}[{place}]"
                ) from None
            self._keys[kid] = AskarSecretKey(key, kid)
        values = [(multikey_of(secret.key), kid) for kid, secret in self._keys.items()]
        self._agreement = [one for one in values if fits(one[0], "key_agreement")]
        """Multibase value and key id of the keys for key agreement."""

    def __repr__(self) -> str:
        return f"<SecretKeys of {', '.join(self.dids) or 'nobody'}>"

    def __reduce__(self) -> str:
        raise TypeError("secret keys are not pickled")

    @property
    def dids(self) -> tuple[str, ...]:
        """The DIDs of the keys, in the order given."""
        return tuple(dict.fromkeys(kid.partition("#")[0] for kid in self._keys))

    async def get_secret_by_kid(self, kid: str) -> AskarSecretKey | None:
        return self._keys.get(kid)

    def recipient(self, kids: Iterable[str]) -> RecipientKeys:
        """The keys for a message that names its recipients so."""
        return RecipientKeys(self, any(kid in self._keys for kid in kids))

    def find(self, kid: str) -> RecipientKey | None:
        """The key for key agreement that this name means though it is not its key id: the end of
        one (``#key-2``), or the beginning of its value (see `instep_didcomm.identity.key_names`).
        None: there is none. Raises `MessageRefusedError`: there are several.
        """
        did, mark, fragment = kid.partition("#")
        own = [(value, id) for value, id in self._agreement if not did or id.startswith(f"{did}#")]
        if not mark or not own:
            return None
        ends = [id for _, id in own if id.partition("#")[2] == fragment]
        try:
            found = find_by_value(fragment, own) if len(ends) != 1 else ends[0]
        except AmbiguousNameError as error:
            raise MessageRefusedError(
                Reason.UNRESOLVED, f"the recipient's kid {kid[:120]} {error}"
            ) from None
        if found is None and ends:
            raise MessageRefusedError(
                Reason.UNRESOLVED, f"the recipient's kid {kid[:120]} names {len(ends)} keys of ours"
            )
        return None if found is None else RecipientKey(self._keys[found].key, kid, found)

    def signing(self, did: str) -> AskarSecretKey | None:
        """The first key of this DID that can sign; None if there is none."""
        for kid, secret in self._keys.items():
            if kid.partition("#")[0] == did and secret.key.algorithm in SIGNING_ALGORITHMS:
                return secret
        return None

    @classmethod
    def read(cls, path: str | None, variable: str | None, where: str) -> SecretKeys:
        """The keys in a file or in a variable: a JWK set, or a list of JWKs.

        Raises `ConfigurationError`.
        """
        if path is None and variable is None:
            return cls()
        if path is not None:
            warn_if_readable(path, where)
        try:
            text = Path(path).read_bytes() if path is not None else os.environ[variable or ""]
            read = msgspec.json.decode(text)
        except (OSError, KeyError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            place = path if path is not None else f"environment variable {variable}"
            raise ConfigurationError(
                f"no keys in {place}: {type(error).__name__}",
                where=where,
                hint='a JWK set: {"keys": [{"kid": "did:…#key-1", "kty": …}]}',
            ) from None
        jwks = read.get("keys") if isinstance(read, dict) else read
        if not isinstance(jwks, list) or not all(isinstance(jwk, dict) for jwk in jwks):
            raise ConfigurationError("no JWK set", where=where, hint='{"keys": [ … ]}')
        return cls(jwks, where)


class RecipientKey(AskarSecretKey):  # type: ignore[misc]
    """A key of ours under the name that a message has for it."""

    def __init__(self, key: Key, kid: str, own_kid: str) -> None:
        super().__init__(key, kid)
        self.did = own_kid.partition("#")[0]
        """Our DID that it is of."""


class RecipientKeys(SecretsManager[AskarSecretKey]):  # type: ignore[misc]
    """Our keys as the recipients of one message. A key id goes before any other name.

    Args:
        by_id: Whether one of the recipients is a key id of ours.
    """

    def __init__(self, keys: SecretKeys, by_id: bool) -> None:  # noqa: FBT001
        self._keys = keys
        self._by_id = by_id

    async def get_secret_by_kid(self, kid: str) -> RecipientKey | None:
        secret = await self._keys.get_secret_by_kid(kid)
        if secret is not None:
            return RecipientKey(secret.key, kid, kid)
        return None if self._by_id else self._keys.find(kid)


def new_identity(endpoint: str = "") -> tuple[str, bytes]:
    """A new did:peer:2 and its secret keys, as the bytes of a JWK set to keep in a file.

    Args:
        endpoint: The URL at which it receives messages; empty for an identity that only sends.
    """
    signing, agreement = Key.generate(KeyAlg.ED25519), Key.generate(KeyAlg.X25519)
    services = [
        {"type": "DIDCommMessaging", "serviceEndpoint": {"uri": endpoint, "accept": ["didcomm/v2"]}}
    ]
    did = generate(
        [
            KeySpec.authentication(_multikey("ed25519-pub", signing)),
            KeySpec.key_agreement(_multikey("x25519-pub", agreement)),
        ],
        services if endpoint else [],
    )
    jwks = [
        {**msgspec.json.decode(key.get_jwk_secret()), "kid": f"{did}#key-{number}"}
        for number, key in enumerate((signing, agreement), 1)
    ]
    return did, msgspec.json.encode({"keys": jwks})


def _multikey(codec: str, key: Key) -> str:
    wrapped = multicodec.wrap(multicodec.multicodec(codec), key.get_public_bytes())
    return str(multibase.encode(wrapped, "base58btc"))
