"""Where a peer takes messages: as configured, else as its DID document says."""

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
    """Finds endpoints.

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
        """The http(s) URL that takes messages for this DID; without query and login where it is
        the peer's own word. Raises `SourceError`: there is none, or it is no URL.
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
