"""Where a peer takes messages, by our configuration or by its own word."""

from __future__ import annotations

import pytest

from instep.errors import SourceError
from instep_didcomm import new_identity
from instep_didcomm.http.client import PeerEndpoint
from instep_didcomm.identity.did_documents import DidDocuments
from instep_didcomm.options import Peer
from instep_didcomm.sending.endpoints import EndpointResolver
from tests.instep_http.test_urls import BAD


@pytest.mark.asyncio
async def test_what_we_name_wins_and_is_taken_as_it_is() -> None:
    did, _ = new_identity("https://theirs.example/in")
    peers = (Peer(did, "https://ours.example/in?token=1"),)
    resolver = EndpointResolver(peers, DidDocuments([]), follow_documents=True)
    expected = PeerEndpoint("https://ours.example/in?token=1", configured=True)
    assert await resolver.endpoint(did) == expected


@pytest.mark.asyncio
async def test_what_a_document_states_is_taken_without_query_and_login() -> None:
    did, _ = new_identity("https://user:pass@theirs.example/in?delete=all#x")
    resolver = EndpointResolver((), DidDocuments([]), follow_documents=True)
    expected = PeerEndpoint("https://theirs.example/in", configured=False)
    assert await resolver.endpoint(did) == expected
    silent = EndpointResolver((), DidDocuments([]), follow_documents=False)
    with pytest.raises(SourceError, match="no endpoint is known"):
        await silent.endpoint(did)


@pytest.mark.asyncio
@pytest.mark.parametrize("endpoint", BAD)
async def test_an_endpoint_that_is_no_url_is_an_error_of_ours(endpoint: str) -> None:
    did, _ = new_identity(endpoint)
    resolver = EndpointResolver((), DidDocuments([]), follow_documents=True)
    with pytest.raises(SourceError, match="not a URL"):
        await resolver.endpoint(did)
