"""`TapiSource` keeps the promises of a source, against the real provider."""

from __future__ import annotations

from typing import Any

import pytest

from instep import Mode
from instep.model import Start
from instep.testing import SOURCE_PROMISES, check_source
from instep_tapi import TapiSource, read_options
from tests.instep_tapi.source_kit import TRUNCATED, one_stream, only, receive, serving

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("promise", SOURCE_PROMISES)
@pytest.mark.parametrize("options", [{}, {"compression": True}], ids=["plain", "compressed"])
async def test_a_source_keeps(promise: str, options: dict[str, Any]) -> None:
    async with serving() as (provider, _):
        count = len(provider.entities("network")) + 2 * len(provider.delete("n3"))
        settings = read_options({"endpoints": [provider.url], **options}, "source")
        await check_source(lambda: TapiSource(settings), least_records=count, only=promise)


async def test_what_is_gone_is_in_no_baseline() -> None:
    async with serving(one_stream(storage=TRUNCATED)) as (provider, source):
        count = len(provider.entities("network")) + 2 * len(provider.delete("n3"))
        info = await only(source)
        assert info.mode is Mode.BASELINE
        async with source.feed(info, Start.OLDEST) as feed:
            ended = {one.key for one in await receive(feed, count) if one.ends}
        assert ended == {"n3", "p3"}
        settings = read_options({"endpoints": [provider.url]}, "source")
        for promise in ("what-is-gone-is-gone", "a-baseline-states-what-is"):
            await check_source(lambda: TapiSource(settings), least_records=count, only=promise)
