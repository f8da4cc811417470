"""Messages packed by another library, SICPA's `didcomm` 0.3.2, are received over real HTTP.

It needs other versions of what we need, so it lives in an environment of its own, made once.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from aries_askar import Key, KeyAlg

from instep_didcomm.wire.envelope import Form, media_form
from tests.instep_didcomm.listener_kit import plain, post, serving

PACKER = Path(__file__).resolve().parents[1] / "peers" / "sicpa_packer.py"
LIBRARY = "didcomm==0.3.2"
ALICE, BOB, MALLORY = "did:example:alice", "did:example:bob", "did:example:mallory"
PACKINGS = ["plain", "signed", "anoncrypt", "authcrypt", "anonsigned", "authsigned"]
PROVEN = ["signed", "authcrypt", "anonsigned", "authsigned"]


@pytest.fixture(scope="module")
def sicpa() -> Path:
    """The Python of an environment that has the library."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "instep-tests"
    place = cache / f"{LIBRARY}-py{sys.version_info.major}{sys.version_info.minor}"
    python, ready = place / "bin" / "python", place / "ready"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            for command in (
                [sys.executable, "-m", "venv", "--clear", str(place)],
                [str(python), "-m", "pip", "install", "-q", LIBRARY],
            ):
                made = subprocess.run(
                    command, check=False, capture_output=True, text=True, timeout=300
                )
                if made.returncode != 0:
                    pytest.skip(f"no environment for {LIBRARY}: {made.stderr[-200:]}")
            ready.touch()
    return python


def identity(did: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A DID document that both libraries read, and its secret keys."""
    keys = {f"{did}#1": Key.generate(KeyAlg.ED25519), f"{did}#2": Key.generate(KeyAlg.X25519)}
    document = {
        "@context": ["https://www.w3.org/ns/did/v1"],
        "id": did,
        "verificationMethod": [
            {
                "id": kid,
                "type": "JsonWebKey2020",
                "controller": did,
                "publicKeyJwk": json.loads(key.get_jwk_public()),
            }
            for kid, key in keys.items()
        ],
        "authentication": [f"{did}#1"],
        "keyAgreement": [f"{did}#2"],
    }
    secrets = [{**json.loads(key.get_jwk_secret()), "kid": kid} for kid, key in keys.items()]
    return document, secrets


class Parties:
    def __init__(self, folder: Path, python: Path) -> None:
        self.python = python
        made = {did: identity(did) for did in (ALICE, BOB, MALLORY)}
        self.documents = [document for document, _ in made.values()]
        self.secrets = [key for did in (ALICE, MALLORY) for key in made[did][1]]
        (folder / "bob.json").write_text(json.dumps({"keys": made[BOB][1]}))
        (folder / "documents.json").write_text(json.dumps(self.documents))
        self.options: dict[str, Any] = {
            "did": BOB,
            "secrets_file": str(folder / "bob.json"),
            "did_documents": [str(folder / "documents.json")],
        }

    def pack(self, *jobs: tuple[str, str, dict[str, Any]]) -> list[str]:
        """Each job: packing, recipient, message."""
        given = {
            "documents": self.documents,
            "secrets": self.secrets,
            "jobs": [{"packing": p, "to": to, "message": message} for p, to, message in jobs],
        }
        packed = subprocess.run(
            [str(self.python), str(PACKER)],
            input=json.dumps(given),
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert packed.returncode == 0, packed.stderr
        return list(json.loads(packed.stdout))


@pytest.fixture
def parties(tmp_path: Path, sicpa: Path) -> Parties:
    return Parties(tmp_path, sicpa)


def bid(order: int, **headers: object) -> dict[str, Any]:
    return plain(order, **{"from": ALICE, "to": [BOB], **headers})


@pytest.mark.asyncio
@pytest.mark.timeout(600)
async def test_its_messages_are_received_in_order(parties: Parties) -> None:
    jobs = [(packing, BOB, bid(order)) for order, packing in enumerate(PACKINGS, 1)]
    jobs.append(("authcrypt", BOB, bid(1, sent_count=2, id="bid-1")))
    *packed, again = parties.pack(*jobs)
    async with serving(**parties.options, require_authenticated=False) as (listener, intake):
        for raw in reversed(packed):
            assert (await post(listener.address, raw.encode(), ""))[0] == 202
        assert (await post(listener.address, again.encode(), ""))[0] == 202
        assert intake.numbers(f"lot-7 {ALICE}") == [1, 2, 3, 4, 5, 6]
        assert intake.receipts == {"accepted": 6, "duplicate": 1}
        assert intake.deviations == {}
        kept = [json.loads(message.attributes) for message in intake.delivered]
        assert [p for p, one in zip(PACKINGS, kept, strict=True) if one["authenticated"]] == PROVEN
        assert [json.loads(message.body)["body"]["amount"] for message in intake.delivered] == [
            100 * order for order in range(1, 7)
        ]
        assert media_form(json.loads(packed[0])["typ"]) is Form.PLAIN


@pytest.mark.asyncio
@pytest.mark.timeout(600)
async def test_what_is_wrong_with_them_is_refused_with_the_reason(parties: Parties) -> None:
    past = int(time.time()) - 60
    good, wrong_recipient, expired, claimed, mallorys = parties.pack(
        ("authcrypt", BOB, bid(1)),
        ("authcrypt", MALLORY, bid(1, to=[MALLORY])),
        ("authcrypt", BOB, bid(2, expires_time=past)),
        ("plain", BOB, bid(3)),
        ("authcrypt", BOB, bid(3, **{"from": MALLORY})),
    )
    tampered = json.loads(good)
    tampered["ciphertext"] = ("A" if tampered["ciphertext"][0] != "A" else "B") + (
        tampered["ciphertext"][1:]
    )
    forged = json.loads(good)
    forged["protected"] = json.loads(mallorys)["protected"]
    async with serving(**parties.options) as (listener, intake):
        for message, status, reason in (
            (json.dumps(tampered), 400, "tampered"),
            (json.dumps(forged), 400, "tampered"),
            (wrong_recipient, 403, "wrong-recipient"),
            (expired, 410, "expired"),
            (claimed, 403, "unauthenticated"),
        ):
            answered, problem, _ = await post(listener.address, message.encode(), "")
            assert (answered, problem["title"]) == (status, reason), problem
        assert intake.delivered == []
        assert (await post(listener.address, good.encode(), ""))[0] == 202
        assert intake.numbers(f"lot-7 {ALICE}") == [1]
