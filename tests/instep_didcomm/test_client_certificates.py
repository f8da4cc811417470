"""By https with `client_ca`, a certificate guards the door. Where no key proves the sender, the
certificate names it: nobody writes in the thread of another.
"""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any

import pytest

from instep.runtime.receiver import Receiver
from instep.runtime.settings import ConsumerSettings, IntakeSettings
from instep_didcomm import DidcommListener, new_identity, read_options
from instep_didcomm.identity.did_documents import DidDocuments
from instep_didcomm.identity.keys import SecretKeys
from instep_didcomm.wire.pack import EnvelopePacker, Packing
from instep_sql import SqlStore
from tests.instep_didcomm.listener_kit import AUCTION, keys_file, plain, serving
from tests.instep_http.certificates_kit import Certificates

URL = "https://127.0.0.1:0/didcomm"
JSON = "application/didcomm-plain+json"


@pytest.mark.asyncio
@pytest.mark.parametrize("large", [0, 100_000])
async def test_a_thread_is_of_the_certificate_where_no_key_proves_its_sender(
    tmp_path: Path, large: int
) -> None:
    made = Certificates(tmp_path)
    async with serving(listen=URL, tls=made.tls) as (listener, intake):

        async def send(order: int, context: ssl.SSLContext, mark: str) -> tuple[int, Any]:
            message = plain(order, body={"mark": mark, "more": "x" * large})
            raw = json.dumps(message).encode()
            status, answer = await made.post(listener.address, raw, context, JSON)
            return status, json.loads(answer or b"{}").get("title")

        alice, mallory = made.client("alice.example.org"), made.client("mallory.example.org")
        assert await send(1, alice, "alice") == (202, None)
        # It is in a thread of her own, and 3 waits there for ever.
        assert await send(1, mallory, "mallory") == (202, None)
        assert await send(3, mallory, "mallory") == (202, None)
        renewed = made.client("alice.example.org", common_name="renewed")
        assert await send(2, renewed, "alice") == (202, None)
        assert await send(3, alice, "alice") == (202, None)
        scope = "lot-7 alice.example.org did:ex:alice"
        assert intake.numbers(scope) == [1, 2, 3]
        assert intake.numbers("lot-7 mallory.example.org did:ex:alice") == [1]
        for message in intake.delivered:
            mark = json.loads(message.body)["body"]["mark"]
            kept = json.loads(message.attributes)
            assert (kept["certificate"], kept["authenticated"]) == (f"{mark}.example.org", False)
        assert listener.peer_of(scope) == "alice.example.org"
        assert [one.id for one in await listener._received_orders("lot-7", [])] == ["did:ex:alice"]


@pytest.mark.asyncio
async def test_messages_without_numbers_too(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    async with serving(listen=URL, tls=made.tls) as (listener, intake):
        raw = json.dumps(plain(None, id="same", type="urn:other")).encode()
        for name in ("alice.example.org", "mallory.example.org", "alice.example.org"):
            status, _ = await made.post(listener.address, raw, made.client(name), JSON)
            assert status == 202
        scopes = [message.scope for message in intake.delivered]
        assert scopes == [" alice.example.org did:ex:alice", " mallory.example.org did:ex:alice"]
        assert [listener.peer_of(scope) for scope in scopes] == [
            "alice.example.org",
            "mallory.example.org",
        ]


@pytest.mark.asyncio
async def test_behind_keys_the_did_is_the_sender(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    did, keys = new_identity()
    alice, secrets = new_identity()
    packer = EnvelopePacker(
        SecretKeys(json.loads(secrets)["keys"]), DidDocuments(), Packing.AUTHCRYPT
    )
    options: dict[str, Any] = {"did": did, "secrets_file": keys_file(tmp_path, "us", keys)}
    async with serving(listen=URL, tls=made.tls, **options) as (listener, intake):
        # Two gateways of one sender.
        for order, gateway in ((1, "gw-1.example.org"), (2, "gw-2.example.org")):
            message = plain(order, **{"from": alice, "to": [did]})
            raw, _ = await packer.pack(json.dumps(message).encode(), alice, did)
            status, _ = await made.post(listener.address, raw, made.client(gateway), "")
            assert status == 202
        assert intake.numbers(f"lot-7 {alice}") == [1, 2]
        kept = [json.loads(message.attributes)["certificate"] for message in intake.delivered]
        assert kept == ["gw-1.example.org", "gw-2.example.org"]


@pytest.mark.asyncio
async def test_the_bounds_are_those_of_the_certificate(tmp_path: Path) -> None:
    """Whatever DIDs it claims."""
    made = Certificates(tmp_path)
    table = {"listen": URL, "tls": made.tls, "protocols": [AUCTION]}
    listener = DidcommListener(read_options(table, "test"))
    settings = ConsumerSettings(intake=IntakeSettings(limit_sequences_per_sender=2))
    async with Receiver("test", listener, SqlStore("sqlite://"), settings) as receiver:
        await receiver.aligned(10)
        alice, bob = made.client("alice.example.org"), made.client("bob.example.org")
        answers = []
        for context, sender in ((alice, "a"), (alice, "b"), (alice, "c"), (bob, "d")):
            raw = json.dumps(plain(1, **{"from": f"did:ex:{sender}"})).encode()
            answers.append((await made.post(listener.address, raw, context, JSON))[0])
        assert answers == [202, 202, 503, 202]
