"""Which message types are numbered is declared; the first declaration that fits counts."""

from __future__ import annotations

import pytest

from instep_didcomm.wire.protocols import Protocol, Protocols, message_scope, sequence_scope

DECLARED = Protocols(
    (
        Protocol("https://didcomm.org/auction/1.0/notice", sequenced=False),
        Protocol("https://didcomm.org/auction/1.0/*"),
        Protocol("https://example.org/a?b[c]/*"),
    )
)


@pytest.mark.parametrize(
    ("message_type", "sequenced"),
    [
        ("https://didcomm.org/auction/1.0/bid", True),
        ("https://didcomm.org/auction/1.0/notice", False),
        ("https://didcomm.org/auction/2.0/bid", False),
        ("x-https://didcomm.org/auction/1.0/bid", False),
        ("https://example.org/a?b[c]/d", True),
        ("https://example.org/axbc/d", False),
        ("", False),
    ],
)
def test_declarations(message_type: str, sequenced: bool) -> None:
    assert DECLARED.sequenced(message_type) is sequenced


def test_scopes_of_different_senders_and_threads_differ() -> None:
    scopes = {
        sequence_scope("t", "did:ex:a"),
        sequence_scope("t", "did:ex:b"),
        sequence_scope("u", "did:ex:a"),
        message_scope("did:ex:a"),
        message_scope(""),
    }
    assert len(scopes) == 5
