"""What becomes of numbers that the policy of a gap ends, on the wire of WS-RM."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.instep_wsrm.rm_kit import S11, S12, Answer, Site, message, running, sequence, until

pytestmark = pytest.mark.asyncio
FAIL = {"gap_deadline_s": 0.2, "gap_repeat_s": 0.1, "gap_attempts": 1}


async def send(site: Site, identifier: str, number: int, soap: str = S12) -> Answer:
    return await site.say(sequence(identifier, number), message(number), soap=soap)


async def test_what_was_acknowledged_is_kept_when_the_sequence_fails(tmp_path: Path) -> None:
    path = tmp_path / "rm.db"
    async with running(f"sqlite:///{path}", sequence=FAIL) as site:
        identifier = await site.create()
        await send(site, identifier, 1)
        assert (await send(site, identifier, 3)).ranges() == [(1, 1), (3, 3)]

        async def over() -> bool:
            return (await send(site, identifier, 1)).raw.find(b"SequenceTerminated") > 0

        await until(over)
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT number FROM instep_inbox UNION SELECT number FROM instep_message"
        )
        assert {number for (number,) in rows} == {1, 3}


@pytest.mark.parametrize("soap", [S11, S12])
async def test_a_number_that_was_given_up_has_a_code_of_rm(soap: str) -> None:
    skip = {"gap_policy": "skip", "gap_deadline_s": 0.1}
    async with running(sequence=skip) as site:
        identifier = await site.create()
        for number in (1, 3):
            await send(site, identifier, number)

        async def passed() -> bool:
            return await site.numbers() == [1, 3]

        await until(passed)
        late = await send(site, identifier, 2, soap)
        assert late.status in (400, 500)
        assert b"r:SequenceClosed" in late.raw, late
        assert "cancel" in late.raw.decode().lower(), "the text says what resolves it"
