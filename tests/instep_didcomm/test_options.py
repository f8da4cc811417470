"""The table of a `didcomm` source: every mistake is named by its place; no secret is shown."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from instep.errors import ConfigurationError
from instep.sequencing.gaps import GapPolicy
from instep_didcomm import DidcommListener, new_identity, read_options
from instep_didcomm.identity.keys import SecretKeys
from instep_didcomm.plugin import source
from tests.instep_didcomm.listener_kit import keys_file

LISTEN = {"listen": "http://127.0.0.1:0/didcomm"}


def test_the_least_and_the_most(tmp_path: Path) -> None:
    assert read_options({"kind": "didcomm", "listen": "127.0.0.1:0"}, "x").listen == (
        "http://127.0.0.1:0"
    )
    options = read_options(
        {
            **LISTEN,
            "did": "did:ex:us",
            "peers": [{"did": "did:ex:alice", "endpoint": "https://example.org/a"}],
            "protocols": [{"type": "https://didcomm.org/auction/1.0/*", "sequenced": True}],
            "sequence": {"gap_policy": "skip", "gap_deadline_s": 1.5},
            "outbox": {"resend_after_s": 2},
            "require_authenticated": False,
            "packing": "plain",
        },
        "x",
    )
    assert options.sequence.gap_policy is GapPolicy.SKIP
    assert options.outbox.resend_after_s == 2
    assert options.protocols[0].sequenced
    source.check(LISTEN, str(tmp_path))


def test_beyond_loopback_a_sender_is_proven_unless_that_is_allowed_by_name(tmp_path: Path) -> None:
    _, keys = new_identity()
    proven = {"secrets_file": keys_file(tmp_path, "us", keys)}
    for listen in ("0.0.0.0:0", "http://192.0.2.1:9555/in", "[::]:0", "http://example.org/in"):
        with pytest.raises(ConfigurationError, match="allow_unauthenticated"):
            read_options({"listen": listen}, "x")
        with pytest.raises(ConfigurationError, match="allow_unauthenticated"):
            read_options({"listen": listen, **proven, "require_authenticated": False}, "x")
        for given in (proven, {"allow_unauthenticated": True}, {"require_authenticated": True}):
            read_options({"listen": listen, **given}, "x")
    for listen in ("127.0.0.1:0", "[::1]:0", "localhost:0"):
        read_options({"listen": listen}, "x")


def test_an_idle_thread_is_forgotten_in_the_end() -> None:
    for given in ({}, {"sequence": {"gap_policy": "skip"}}):
        assert read_options({**LISTEN, **given}, "x").sequence.idle_timeout_s == 30 * 86_400
    protocol = {"type": "x", "sequence": {"gap_policy": "skip"}}
    read = read_options({**LISTEN, "protocols": [protocol]}, "x").protocols[0].sequence
    assert read is not None
    assert read.idle_timeout_s == 30 * 86_400
    assert protocol["sequence"] == {"gap_policy": "skip"}
    never = {"sequence": {"idle_timeout_s": 0}}
    assert read_options({**LISTEN, **never}, "x").sequence.idle_timeout_s == 0


@pytest.mark.parametrize(
    ("table", "where", "said"),
    [
        ({"listen": None}, "x", "listen"),
        ({"listen": "ftp://a"}, "x.listen", "not a URL"),
        ({"listen": "http://u:p@a/"}, "x.listen", "login"),
        ({"listen": "http://a/?q=1"}, "x.listen", "ends with a query or a fragment"),
        ({"listen": "https://a/"}, "x.tls.cert", "certificate"),
        ({"listn": 1}, "x", "did you mean 'listen"),
        ({"did": "alice"}, "x.did", "not a DID"),
        (
            {"secrets_file": "a", "secrets_env": "b"},
            "x",
            "secrets_file and secrets_env are both given",
        ),
        ({"peers": [{"did": "a", "endpoint": "http://a"}]}, "x.peers[0].did", "not a DID"),
        ({"peers": [{"did": "did:ex:a", "endpoint": "a"}]}, "x.peers[0].endpoint", "not a URL"),
        ({"peers": [{"did": "did:ex:a"}]}, "x", "endpoint"),
        ({"protocols": [{"type": ""}]}, "x.protocols[0].type", "no type"),
        ({"protocols": [{"typ": "a"}]}, "x: protocols[0]", "typ"),
        ({"sequence": {"gap_policy": "realign"}}, "x.sequence", "no other way"),
        ({"sequence": {"first_number": 0}}, "x.sequence.first_number", "counts from 1"),
        ({"sequence": {"gap_polcy": "skip"}}, "x.sequence", "gap_policy"),
        ({"max_body_bytes": 0}, "x", "max_body_bytes"),
        ({"packing": "authcrypt"}, "x.packing", "needs our keys"),
        ({"tls": {"ca": "/nowhere.pem"}}, "x.tls.ca", "no such file"),
    ],
)
def test_mistakes_are_named(table: dict[str, Any], where: str, said: str) -> None:
    given = {name: value for name, value in {**LISTEN, **table}.items() if value is not None}
    with pytest.raises(ConfigurationError, match=r"(?s).*") as caught:
        source.check(given, "x")
    assert caught.value.where == where
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "no keys in"),
        ("5", "no JWK set"),
        ("[5]", "no JWK set"),
        ('{"keys": [{"kty": "OKP"}]}', "without kid"),
        ('{"keys": [{"kid": "did:ex:a#1", "kty": "OKP"}]}', "no private key"),
        ('{"keys": [{"kid": "did:ex:a#1", "kty": "OKP", "d": "hush-hush"}]}', "no JWK"),
    ],
)
def test_mistakes_in_secrets_are_named_and_not_shown(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = keys_file(tmp_path, "keys", text.encode())
    monkeypatch.setenv("DIDCOMM_KEYS", text)
    for given in ({"secrets_file": path}, {"secrets_env": "DIDCOMM_KEYS"}):
        with pytest.raises(ConfigurationError) as caught:
            source.check({**LISTEN, **given}, "x")
        assert said in str(caught.value)
        assert "hush-hush" not in str(caught.value)
        assert caught.value.where.startswith("x.secrets")


def test_missing_places_of_secrets(tmp_path: Path) -> None:
    for given in ({"secrets_file": str(tmp_path / "none")}, {"secrets_env": "NOT_SET_ANYWHERE"}):
        with pytest.raises(ConfigurationError, match="no keys in"):
            source.check({**LISTEN, **given}, "x")


def test_keys_are_shown_nowhere(tmp_path: Path) -> None:
    did, raw = new_identity()
    jwks = json.loads(raw)["keys"]
    options = read_options({**LISTEN, "secrets_file": keys_file(tmp_path, "us", raw)}, "x")
    listener = DidcommListener(options)
    assert listener.did == did
    for shown in (repr(listener), repr(options), repr(SecretKeys(jwks)), str(SecretKeys(jwks))):
        assert not any(jwk["d"] in shown for jwk in jwks)
    with pytest.raises(ConfigurationError, match="none of the secret keys"):
        source.check({**LISTEN, "secrets_file": options.secrets_file, "did": "did:ex:us"}, "x")
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(SecretKeys(jwks))


@pytest.mark.parametrize("text", ["{", "[5]", '[{"id": "alice"}]'])
def test_mistakes_in_documents_are_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "documents.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        source.check({**LISTEN, "did_documents": str(path)}, "x")
    assert caught.value.where == "x.did_documents"
