"""Packs messages with SICPA's `didcomm` 0.3.2; run by its own Python, for it cannot share ours.

Reads one JSON object: documents (DID documents), secrets (private JWKs with kid), jobs (packing,
message). Writes a JSON list of packed messages.
"""

import asyncio
import json
import sys
import warnings
from typing import Any

warnings.simplefilter("ignore")

from didcomm.common.resolvers import ResolversConfig  # noqa: E402
from didcomm.did_doc.did_doc import DIDDoc  # noqa: E402
from didcomm.did_doc.did_resolver_in_memory import DIDResolverInMemory  # noqa: E402
from didcomm.message import Message  # noqa: E402
from didcomm.pack_encrypted import PackEncryptedConfig, pack_encrypted  # noqa: E402
from didcomm.pack_plaintext import pack_plaintext  # noqa: E402
from didcomm.pack_signed import pack_signed  # noqa: E402
from didcomm.secrets.secrets_resolver_in_memory import SecretsResolverInMemory  # noqa: E402
from didcomm.secrets.secrets_util import jwk_to_secret  # noqa: E402

HEADERS = {"id", "type", "body", "to", "thid", "created_time", "expires_time"}


def message_of(headers: dict[str, Any]) -> Message:
    """The library's own message; what it does not know are custom headers."""
    known = {name: value for name, value in headers.items() if name in HEADERS}
    custom = {k: v for k, v in headers.items() if k not in HEADERS and k != "from"}
    return Message(frm=headers.get("from"), custom_headers=custom, **known)


async def pack(config: ResolversConfig, job: dict[str, Any]) -> str:
    headers = job["message"]
    message, sender, to = message_of(headers), headers.get("from"), job["to"]
    plain = PackEncryptedConfig(forward=False)
    packing = job["packing"]
    if packing == "plain":
        return str((await pack_plaintext(config, message)).packed_msg)
    if packing == "signed":
        return str((await pack_signed(config, message, sender)).packed_msg)
    frm = sender if packing in ("authcrypt", "authsigned") else None
    sign = sender if packing in ("anonsigned", "authsigned") else None
    packed = await pack_encrypted(config, message, to, frm, sign, plain)
    return str(packed.packed_msg)


async def main() -> None:
    given = json.load(sys.stdin)
    config = ResolversConfig(
        SecretsResolverInMemory([jwk_to_secret(jwk) for jwk in given["secrets"]]),
        DIDResolverInMemory([DIDDoc.deserialize(document) for document in given["documents"]]),
    )
    json.dump([await pack(config, job) for job in given["jobs"]], sys.stdout)


asyncio.run(main())
