"""Finds the endpoint of a peer: the configured one, else the one in its DID document."""

from __future__ import annotations

from typing import Final

from instep.errors import SourceError
from instep_didcomm.http.client import PeerEndpoint
from instep_didcomm.identity.did_documents import DidDocuments
from instep_didcomm.options import Peer
from instep_didcomm.problems import MessageRefusedError
from instep_http import parse_url

__all__ = ["EndpointResolver"]

_HINT: Final = 'peers = [{ did = "did:…", endpoint = "https://…" }]'


class EndpointResolver:
    """Resolves DIDs to endpoints.

    Args:
        follow_documents: Whether an endpoint that only a DID document states is used.
    """

    def __init__(
        self, peers: tuple[Peer, ...], documents: DidDocuments, *, follow_documents: bool
    ) -> None:
        self._peers = {peer.did: peer.endpoint for peer in peers}
        self._documents = documents
        self._follow_documents = follow_documents

    async def endpoint(self, did: str) -> PeerEndpoint:
        """The endpoint of this DID, an http(s) URL. A URL that the peer stated loses query and
        login. Raises `SourceError` if there is none, or if it is not a URL.
        """
        if did in self._peers:
            return PeerEndpoint(self._peers[did], configured=True)
        found = ""
        if self._follow_documents:
            try:
                found = await self._documents.endpoint(did)
            except MessageRefusedError as error:
                raise SourceError(error.message, where=did[:120], hint=_HINT) from None
        if not found:
            raise SourceError(
                "no endpoint is known for this peer",
                where=did[:120],
                hint=_HINT,
            )
        url = parse_url(found).with_query(None).with_fragment(None).with_user(None)
        return PeerEndpoint(str(url), configured=False)
