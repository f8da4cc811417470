"""Messages packed by two other libraries are received over real HTTP: SICPA's `didcomm` 0.3.2 and
`didcomm-messaging`, each in a process without instep.

The former needs other versions of what we need, so it lives in an environment of its own, made
once. The latter is what opens envelopes here, so it proves less.
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

from instep.conformance import Event, judge
from instep_didcomm.conformance import didcomm_rules
from instep_didcomm.identity.key_names import multikey_of
from instep_didcomm.wire.envelope import Form, media_form
from tests.instep_didcomm.listener_kit import plain, post, serving

PEERS = Path(__file__).resolve().parents[1] / "peers"
LIBRARY = "didcomm==0.3.2"
ALICE, BOB, MALLORY = "did:example:alice", "did:example:bob", "did:example:mallory"
PACKINGS = ["plain", "signed", "anoncrypt", "authcrypt", "anonsigned", "authsigned"]
UNSIGNED = ["plain", "anoncrypt", "authcrypt"]
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


def peer_identity() -> tuple[str, dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
    """A did:peer:2, its document as peerdid-python wrote it from 2021 to 2023, and its secret keys:
    as that library names them, and as we do.
    """
    agreement, signing = Key.generate(KeyAlg.X25519), Key.generate(KeyAlg.ED25519)
    values = [multikey_of(agreement), multikey_of(signing)]
    did = f"did:peer:2.E{values[0]}.V{values[1]}"
    kids = [f"{did}#{value[1:9]}" for value in values]
    types = ["X25519KeyAgreementKey2020", "Ed25519VerificationKey2020"]
    methods = [
        {"id": kid, "type": type_, "controller": did, "publicKeyMultibase": value}
        for kid, type_, value in zip(kids, types, values, strict=True)
    ]
    document = {
        "id": did,
        "verificationMethod": methods,
        "authentication": [kids[1]],
        "keyAgreement": [kids[0]],
    }
    jwks = [json.loads(key.get_jwk_secret()) for key in (agreement, signing)]
    theirs = [{**jwk, "kid": kid} for jwk, kid in zip(jwks, kids, strict=True)]
    ours = [{**jwk, "kid": f"{did}#key-{n}"} for n, jwk in enumerate(jwks, 1)]
    return did, document, theirs, ours


class Parties:
    def __init__(self, folder: Path, command: list[str], packings: list[str]) -> None:
        self.command = command
        self.packings = packings
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

    def pack(self, *jobs: tuple[str, str, dict[str, Any]], by: str = "") -> list[str]:
        """Each job: packing, recipient, message. `by`: who sends, if not who the message names."""
        given = {
            "documents": self.documents,
            "secrets": self.secrets,
            "jobs": [{"packing": p, "to": to, "message": one, "by": by} for p, to, one in jobs],
        }
        packed = subprocess.run(
            self.command,
            input=json.dumps(given),
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert packed.returncode == 0, packed.stderr
        return list(json.loads(packed.stdout))


@pytest.fixture(params=["sicpa", "didcomm-messaging"])
def parties(tmp_path: Path, request: pytest.FixtureRequest) -> Parties:
    if request.param == "sicpa":
        python = str(request.getfixturevalue("sicpa"))
        return Parties(tmp_path, [python, str(PEERS / "sicpa_packer.py")], PACKINGS)
    command = [sys.executable, str(PEERS / "didcomm_messaging_packer.py")]
    return Parties(tmp_path, command, UNSIGNED)


def bid(order: int, **headers: object) -> dict[str, Any]:
    return plain(order, **{"from": ALICE, "to": [BOB], **headers})


@pytest.mark.asyncio
@pytest.mark.timeout(600)
async def test_its_messages_are_received_in_order(parties: Parties) -> None:
    packings = parties.packings
    jobs = [(packing, BOB, bid(order)) for order, packing in enumerate(packings, 1)]
    jobs.append(("authcrypt", BOB, bid(1, sent_count=2, id="bid-1")))
    *packed, again = parties.pack(*jobs)
    events: list[Event] = []
    async with serving(**parties.options, require_authenticated=False) as (listener, intake):
        listener.record(events.append)
        for raw in reversed(packed):
            assert (await post(listener.address, raw.encode(), ""))[0] == 202
        assert (await post(listener.address, again.encode(), ""))[0] == 202
        numbers = list(range(1, len(packings) + 1))
        assert intake.numbers(f"lot-7 {ALICE}") == numbers
        assert intake.receipts == {"accepted": len(numbers), "duplicate": 1}
        assert intake.deviations == {}
        kept = [json.loads(message.attributes) for message in intake.delivered]
        proven = [p for p, one in zip(packings, kept, strict=True) if one["authenticated"]]
        assert proven == [packing for packing in packings if packing in PROVEN]
        assert [json.loads(message.body)["body"]["amount"] for message in intake.delivered] == [
            100 * number for number in numbers
        ]
        assert media_form(json.loads(packed[0])["typ"]) is Form.PLAIN
    report = judge(didcomm_rules(), events)
    assert (report.broken, report.messages) == ([], len(numbers) + 1)


@pytest.mark.asyncio
@pytest.mark.timeout(600)
async def test_what_is_wrong_with_them_is_refused_with_the_reason(parties: Parties) -> None:
    past = int(time.time()) - 60
    good, wrong_recipient, expired, claimed, hidden, mallorys = parties.pack(
        ("authcrypt", BOB, bid(1)),
        ("authcrypt", MALLORY, bid(1, to=[MALLORY])),
        ("authcrypt", BOB, bid(2, expires_time=past)),
        ("plain", BOB, bid(3)),
        ("anoncrypt", BOB, bid(3)),
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
            (hidden, 403, "unauthenticated"),
        ):
            answered, problem, _ = await post(listener.address, message.encode(), "")
            assert (answered, problem["title"]) == (status, reason), problem
        assert intake.delivered == []
        for _ in range(2):
            assert (await post(listener.address, good.encode(), ""))[0] == 202
        assert intake.numbers(f"lot-7 {ALICE}") == [1]


@pytest.mark.asyncio
@pytest.mark.timeout(600)
async def test_who_names_no_sender_is_received_only_without_numbers(parties: Parties) -> None:
    sequenced, other = parties.pack(
        ("anoncrypt", BOB, bid(1, **{"from": None})),
        ("anoncrypt", BOB, bid(1, **{"from": None, "sender_order": None, "type": "urn:other"})),
    )
    async with serving(**parties.options, require_authenticated=False) as (listener, intake):
        answered, problem, _ = await post(listener.address, sequenced.encode(), "")
        assert (answered, problem["title"]) == (400, "no-sender")
        assert (await post(listener.address, other.encode(), ""))[0] == 202
        assert len(intake.delivered) == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("parties", ["didcomm-messaging"], indirect=True)
async def test_a_claimed_name_or_another_recipient_within_is_refused(parties: Parties) -> None:
    """SICPA's library does not pack these."""
    (forged,) = parties.pack(("authcrypt", BOB, bid(1)), by=MALLORY)
    (passed_on,) = parties.pack(("authcrypt", BOB, bid(1, to=[MALLORY])))
    async with serving(**parties.options) as (listener, intake):
        for message, reason in ((forged, "wrong-sender"), (passed_on, "wrong-recipient")):
            answered, problem, _ = await post(listener.address, message.encode(), "")
            assert (answered, problem["title"]) == (403, reason)
        assert intake.delivered == []


@pytest.mark.asyncio
@pytest.mark.timeout(600)
async def test_keys_are_found_by_the_names_of_peerdid_python(
    parties: Parties, tmp_path: Path
) -> None:
    """Both sides of the message: the skid or the signer's kid, and the recipient's kid."""
    alice, alices, secrets, _ = peer_identity()
    bob, bobs, _, ours = peer_identity()
    (tmp_path / "peer.json").write_text(json.dumps({"keys": ours}))
    parties.documents, parties.secrets = [alices, bobs], secrets
    packings = [packing for packing in parties.packings if packing != "plain"]
    jobs = [
        (packing, bob, bid(order, **{"from": alice, "to": [bob]}))
        for order, packing in enumerate(packings, 1)
    ]
    packed = parties.pack(*jobs)
    options: dict[str, Any] = {"did": bob, "secrets_file": str(tmp_path / "peer.json")}
    async with serving(**options, require_authenticated=False) as (listener, intake):
        for raw in packed:
            status, problem, _ = await post(listener.address, raw.encode(), "")
            assert status == 202, problem
        assert intake.numbers(f"lot-7 {alice}") == list(range(1, len(packings) + 1))
        kept = [json.loads(message.attributes)["authenticated"] for message in intake.delivered]
        assert kept == [packing in PROVEN for packing in packings]
