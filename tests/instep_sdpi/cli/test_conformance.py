"""`instep conformance` against providers on loopback: what is held, broken, and not seen."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.instep_sdpi.provider_kit import FakeProvider, providing
from tests.json_names_kit import check_names

pytestmark = pytest.mark.asyncio


async def instep(*arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "instep.cli",
        "conformance",
        "sdpi",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    if "json" in arguments:
        check_names(["conformance", "sdpi"], out)
    return process.returncode, out.decode(), err.decode()


async def judged(provider: FakeProvider, *options: str) -> tuple[int, dict[str, Any]]:
    """What is found of a provider that reports all the time."""

    async def report() -> None:
        while True:
            await asyncio.sleep(0.02)
            await provider.deliver(provider.set("m1", str(provider.version)))

    reporting = asyncio.create_task(report())
    try:
        code, out, _ = await instep(provider.url, "--seconds", "3", "--format", "json", *options)
    finally:
        reporting.cancel()
        await asyncio.gather(reporting, return_exceptions=True)
    return code, {one["clause"].removeprefix("SDPi "): one for one in json.loads(out)["rules"]}


async def test_a_provider_that_holds_them() -> None:
    async with providing() as provider:
        code, found = await judged(provider, "--refuse")
        assert code == 0
        assert {name: one["status"] for name, one in found.items()} == {
            "R0800": "held",
            "R0801": "held",
            "R0802": "held",
        }
        assert not provider.subscriptions


async def test_a_provider_that_counts_on_after_a_fault_is_shown_with_both_reports() -> None:
    class CountsOn(FakeProvider):
        async def deliver(self, body: str) -> None:
            for subscription in list(self.subscriptions.values()):
                await self.post(subscription, body, subscription.number)
                subscription.number += 1

    async with providing() as provider:
        provider.__class__ = CountsOn
        code, found = await judged(provider, "--refuse")
    assert code == 1
    broken = found["R0801"]
    assert broken["status"] == "broken"
    assert "fault" in broken["reason"]
    assert [one["what"].partition(",")[0] for one in broken["evidence"]] == ["number 3", "number 4"]
    assert all("EpisodicMetricReport" in one["body"] for one in broken["evidence"])


class Impatient(FakeProvider):
    """Sends a report again that has no answer for a while."""

    changes = False

    async def deliver(self, body: str) -> None:
        for subscription in list(self.subscriptions.values()):
            for _ in range(10):
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.3):
                        if 200 <= await self.post(subscription, body, subscription.number) < 300:
                            subscription.number += 1
                            break
                if self.changes:
                    body = self.set("m1", f"other-{self.version}")


@pytest.mark.parametrize(("changes", "expected"), [(False, "held"), (True, "broken")])
async def test_a_report_that_is_held_comes_again_with_the_same_content(
    changes: bool, expected: str
) -> None:
    async with providing() as provider:
        provider.__class__ = Impatient
        provider.changes = changes  # type: ignore[attr-defined]
        code, found = await judged(provider, "--hold", "0.8")
    assert found["R0802"]["status"] == expected
    assert found["R0800"]["status"] == "held"
    assert code == changes
    if changes:
        evidence = found["R0802"]["evidence"]
        assert [one["what"].partition(",")[0] for one in evidence] == ["number 3", "number 3"]
        assert "other-" in found["R0802"]["evidence"][1]["body"]


async def test_a_provider_without_numbers_breaks_the_first_one_and_people_can_read_it() -> None:
    async with providing(numbered=False) as provider:
        reporting = asyncio.create_task(_once_subscribed(provider))
        code, out, _ = await instep(provider.url, "--seconds", "2")
        await reporting
    assert code == 1
    assert "✗ broken" in out
    assert "sdpi-first-number: broken 1, held 0 times" in out
    assert "no number" in out
    assert "· not seen" in out


async def _once_subscribed(provider: FakeProvider) -> None:
    while not provider.subscriptions:
        await asyncio.sleep(0.01)
    await provider.notify(provider.set("m1", "1"))


async def test_nothing_to_subscribe_to_is_an_error() -> None:
    async with providing() as provider:
        provider.failing["Subscribe"] = 1
        code, _, err = await instep(provider.url, "--seconds", "2")
    assert code == 1
    assert "503" in err


async def test_a_consumer_s_configuration_says_which_provider(tmp_path: Path) -> None:
    async with providing() as provider:
        config = tmp_path / "instep.toml"
        config.write_text(
            '[[consumers]]\nname = "bed-7"\n[consumers.source]\nkind = "sdpi"\n'
            f'provider = "{provider.url}"\nlisten = "127.0.0.1:0"\n'
            '[consumers.sink]\nkind = "sql"\nurl = "sqlite://"\n'
        )

        async def report() -> None:
            while True:
                await asyncio.sleep(0.02)
                await provider.deliver(provider.set("m1", str(provider.version)))

        reporting = asyncio.create_task(report())
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "instep.cli", "conformance", str(config)),
            *("--minutes", "0.1", "--format", "json"),
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            out, _ = await asyncio.wait_for(process.communicate(), 60)
        finally:
            reporting.cancel()
            await asyncio.gather(reporting, return_exceptions=True)
        found = {one["clause"]: one["status"] for one in json.loads(out)["rules"]}
        assert (process.returncode, found["SDPi R0801"]) == (0, "held")
