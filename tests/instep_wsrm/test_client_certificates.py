"""By https with `client_ca`, the certificate names the source, which owns its sequences."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.instep_http.certificates_kit import Certificates
from tests.instep_wsrm.rm_kit import (
    Answer,
    Site,
    about,
    create,
    envelope,
    message,
    ranges,
    running,
    sequence,
)

URL = "https://127.0.0.1:0/rm"


class Client:
    """Speaks to a destination with one certificate."""

    def __init__(self, made: Certificates, site: Site, context: ssl.SSLContext) -> None:
        self._made, self._site, self._context = made, site, context

    async def say(self, headers: str = "", body: str = "") -> Answer:
        raw = envelope(headers, body)
        return Answer(
            *await self._made.post(self._site.url, raw, self._context, "application/soap+xml")
        )

    async def create(self) -> str:
        answer = await self.say(body=create())
        assert answer.status == 200, answer
        return answer.text("Identifier")

    async def send(self, identifier: str, number: int) -> Answer:
        return await self.say(sequence(identifier, number), message(number))


@asynccontextmanager
async def clients(
    tmp_path: Path, *, fast_path: bool = True
) -> AsyncIterator[tuple[Site, Client, Client]]:
    made = Certificates(tmp_path)
    async with running(listen=URL, tls=made.tls, fast_path=fast_path) as site:
        alice = made.client("alice.example.org")
        mallory = made.client("mallory.example.org")
        yield site, Client(made, site, alice), Client(made, site, mallory)


@pytest.mark.asyncio
@pytest.mark.parametrize("fast_path", [True, False])
async def test_a_sequence_is_its_creators_alone(tmp_path: Path, fast_path: bool) -> None:
    async with clients(tmp_path, fast_path=fast_path) as (site, alice, mallory):
        identifier = await alice.create()
        # Twice, so that what is usual is known, too.
        for number in (1, 2, 4):
            assert (await alice.send(identifier, number)).fault == ""
        theirs = [
            (sequence(identifier, 3), message("forged")),
            (sequence(identifier, 5), message("forged")),
            (about("AckRequested", identifier), ""),
            (about("SequenceCancel", identifier, ranges((3, 3))), ""),
            (about("SequenceFill", identifier, ranges((3, 3))), ""),
            ("", about("CloseSequence", identifier)),
            ("", about("TerminateSequence", identifier)),
        ]
        for headers, body in theirs:
            answer = await mallory.say(headers, body)
            assert (answer.status, answer.fault) == (400, "UnknownSequence"), (headers, answer)
        assert await site.numbers(identifier) == [1, 2]
        answer = await alice.send(identifier, 3)
        assert answer.ranges() == [(1, 4)]
        assert (await alice.say("", about("TerminateSequence", identifier))).fault == ""
        assert {one.sender for one in await site.delivered()} == {"alice.example.org"}


@pytest.mark.asyncio
async def test_with_a_new_certificate_of_the_same_name_it_goes_on(tmp_path: Path) -> None:
    async with clients(tmp_path) as (site, alice, _):
        identifier = await alice.create()
        assert (await alice.send(identifier, 1)).ranges() == [(1, 1)]
        renewed = alice._made.client("alice.example.org", common_name="renewed")
        again = Client(alice._made, site, renewed)
        assert (await again.send(identifier, 2)).ranges() == [(1, 2)]


@pytest.mark.asyncio
async def test_it_stays_its_creators_after_a_restart(tmp_path: Path) -> None:
    made, url = Certificates(tmp_path), f"sqlite:///{tmp_path}/rm.db"
    alice, mallory = made.client("alice.example.org"), made.client("mallory.example.org")
    async with running(url, listen=URL, tls=made.tls) as site:
        identifier = await Client(made, site, alice).create()
    async with running(url, listen=URL, tls=made.tls) as site:
        answer = await Client(made, site, mallory).send(identifier, 1)
        assert answer.fault == "UnknownSequence"
        assert (await Client(made, site, alice).send(identifier, 1)).ranges() == [(1, 1)]


@pytest.mark.asyncio
async def test_what_was_opened_before_certificates_were_asked_for_goes_on(tmp_path: Path) -> None:
    made, url = Certificates(tmp_path), f"sqlite:///{tmp_path}/rm.db"
    async with running(url) as site:
        identifier = await site.create()
    async with running(url, listen=URL, tls=made.tls) as site:
        client = Client(made, site, made.client("alice.example.org"))
        assert (await client.send(identifier, 1)).ranges() == [(1, 1)]


@pytest.mark.asyncio
async def test_the_bounds_are_those_of_the_certificate(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    one = {"limit_sequences_per_sender": 1}
    async with running(listen=URL, tls=made.tls, intake=one) as site:
        alice = Client(made, site, made.client("alice.example.org"))
        await alice.create()
        assert (await alice.say(body=create())).fault == "CreateSequenceRefused"
        # The same address, and another sender.
        await Client(made, site, made.client("bob.example.org")).create()


@pytest.mark.asyncio
async def test_without_the_right_certificate_nothing_is_heard(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    async with running(listen=URL, tls=made.tls) as site:
        for context in (made.client(), made.client("alice.example.org", foreign=True)):
            with pytest.raises(OSError, match=r"(?i)ssl|alert"):
                await Client(made, site, context).create()
        intake = site.receiver.health().intake
        assert intake is not None
        assert intake.refusals == {"tls-handshake": 2}
