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

__all__ = ["SIGNING_ALGORITHMS", "SecretKeys", "new_identity"]


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
