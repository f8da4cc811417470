"""`TapiSource` keeps the promises of a source, against the real provider."""

from __future__ import annotations

from typing import Any

import pytest

from instep.testing import SOURCE_PROMISES, check_source
from instep_tapi import TapiSource, read_options
from tests.instep_tapi.source_kit import serving

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("promise", SOURCE_PROMISES)
@pytest.mark.parametrize("options", [{}, {"compression": True}], ids=["plain", "compressed"])
async def test_a_source_keeps(promise: str, options: dict[str, Any]) -> None:
    async with serving() as (provider, _):
        count = len(provider.entities("network"))
        settings = read_options({"endpoints": [provider.url], **options}, "source")
        await check_source(lambda: TapiSource(settings), least_records=count, only=promise)
