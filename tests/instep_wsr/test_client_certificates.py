"""By https with `client_ca`, the name in the certificate is the sender: its groups are its own."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from tests.instep_http.certificates_kit import Certificates
from tests.instep_wsr.wsr_kit import (
    GROUP,
    UNORDERED,
    Answer,
    Site,
    body,
    envelope,
    poll,
    request,
    running,
)

URL = "https://127.0.0.1:0/rm"


class Client:
    """Speaks to a receiver with one certificate."""

    def __init__(self, made: Certificates, site: Site, context: ssl.SSLContext) -> None:
        self._made, self._site, self._context = made, site, context

    async def say(self, headers: str = "", content: str = "") -> Answer:
        raw = envelope(headers, content)
        return Answer(*await self._made.post(self._site.url, raw, self._context))

    async def send(self, number: int, **changes: str) -> Answer:
        return await self.say(request(number, **changes), body(number))


@pytest.mark.asyncio
@pytest.mark.parametrize("fast_path", [True, False])
async def test_a_group_is_its_openers_alone(tmp_path: Path, fast_path: bool) -> None:
    made = Certificates(tmp_path)
    async with running(listen=URL, tls=made.tls, fast_path=fast_path) as site:
        alice = Client(made, site, made.client("alice.example.org"))
        mallory = Client(made, site, made.client("mallory.example.org"))
        for number in (0, 1):
            assert (await alice.send(number)).acknowledged == [(0, number)]
        for number in (0, 2, 3):
            assert (await mallory.send(number)).faults == [(number, number, "InvalidMessageId")]
        assert (await mallory.send(2, last="true")).faults == [(2, 2, "InvalidMessageId")]
        assert (await mallory.say(poll((0, 5)))).replies == []
        assert (await alice.say(poll((0, 5)))).acknowledged == [(0, 1)]
        assert (await alice.send(2)).acknowledged == [(0, 2)]
        # With a new certificate of the same name, it goes on.
        renewed = Client(made, site, made.client("alice.example.org", common_name="renewed"))
        assert (await renewed.send(3)).acknowledged == [(0, 3)]
        assert await site.numbers() == [0, 1, 2, 3]
        assert {one.sender for one in await site.delivered()} == {"alice.example.org"}


@pytest.mark.asyncio
async def test_it_stays_its_openers_after_a_restart(tmp_path: Path) -> None:
    made, url = Certificates(tmp_path), f"sqlite:///{tmp_path}/wsr.db"
    alice, mallory = made.client("alice.example.org"), made.client("mallory.example.org")
    async with running(url, listen=URL, tls=made.tls) as site:
        assert (await Client(made, site, alice).send(0)).acknowledged == [(0, 0)]
    async with running(url, listen=URL, tls=made.tls) as site:
        assert (await Client(made, site, mallory).send(1)).faults == [(1, 1, "InvalidMessageId")]
        assert (await Client(made, site, alice).send(1)).acknowledged == [(0, 1)]


@pytest.mark.asyncio
async def test_the_bounds_are_those_of_the_certificate(tmp_path: Path) -> None:
    """Whatever the groupId says: without a certificate, its domain stands for the sender."""
    made, url = Certificates(tmp_path), f"sqlite:///{tmp_path}/wsr.db"
    two = {"limit_sequences_per_sender": 2}
    alice, bob = made.client("alice.example.org"), made.client("bob.example.org")
    groups = ["mid:1@one.example", "mid:1@two.example", "mid:1@three.example"]
    async with running(url, listen=URL, tls=made.tls, intake=two) as site:
        client = Client(made, site, alice)
        for group in groups[:2]:
            assert (await client.send(0, group=group)).acknowledged == [(0, 0)]
        refused = (await client.send(0, group=groups[2])).faults
        assert refused == [(0, 0, "MessageProcessingFailure")]
        assert (await Client(made, site, bob).send(0)).acknowledged == [(0, 0)]
    # The same after a restart: the sender is kept with the group.
    async with running(url, listen=URL, tls=made.tls, intake=two) as site:
        client = Client(made, site, alice)
        assert (await client.send(1, group=groups[0])).acknowledged == [(0, 1)]
        refused = (await client.send(0, group=groups[2])).faults
        assert refused == [(0, 0, "MessageProcessingFailure")]
        assert (await Client(made, site, bob).send(1, group=GROUP)).acknowledged == [(0, 1)]


@pytest.mark.asyncio
async def test_what_was_opened_before_certificates_were_asked_for_goes_on(tmp_path: Path) -> None:
    made, url = Certificates(tmp_path), f"sqlite:///{tmp_path}/wsr.db"
    async with running(url) as site:
        assert (await site.send(0, features=UNORDERED)).acknowledged == [(0, 0)]
    async with running(url, listen=URL, tls=made.tls) as site:
        client = Client(made, site, made.client("alice.example.org"))
        assert (await client.send(1, features=UNORDERED)).acknowledged == [(0, 1)]
