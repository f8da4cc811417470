"""Packs messages with the library `didcomm-messaging`; a process of its own, without instep.

Reads and writes what `sicpa_packer` does. It does not sign. A job may name another sender as `by`.
"""

import asyncio
import json
import sys
from typing import Any

from aries_askar import Key
from didcomm_messaging.crypto.backend.askar import AskarCryptoService, AskarSecretKey
from didcomm_messaging.crypto.backend.basic import InMemorySecretsManager
from didcomm_messaging.packaging import PackagingService
from didcomm_messaging.resolver import DIDResolver


class Resolver(DIDResolver):  # type: ignore[misc]  # the library has no types
    """Knows the documents that it was given."""

    def __init__(self, documents: list[dict[str, Any]]) -> None:
        self.documents = {document["id"]: document for document in documents}

    async def resolve(self, did: str) -> dict[str, Any]:
        return self.documents[did]

    async def is_resolvable(self, did: str) -> bool:
        return did in self.documents


async def main() -> None:
    given = json.load(sys.stdin)
    crypto, packaging = AskarCryptoService(), PackagingService()
    resolver, secrets = Resolver(given["documents"]), InMemorySecretsManager()
    for jwk in given["secrets"]:
        await secrets.add_secret(AskarSecretKey(Key.from_jwk(jwk), jwk["kid"]))
    packed = []
    for job in given["jobs"]:
        raw = json.dumps({"typ": "application/didcomm-plain+json", **job["message"]}).encode()
        if job["packing"] != "plain":
            by = job["by"] or job["message"].get("from")
            sender = by if job["packing"] == "authcrypt" else None
            raw = await packaging.pack(crypto, resolver, secrets, raw, [job["to"]], sender)
        packed.append(raw.decode())
    json.dump(packed, sys.stdout)


asyncio.run(main())
