"""`instep conformance tapi` against providers on loopback, in every form of output."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from instep_tapi_provider import Faults, Provider, ProviderSettings, topology_context
from tests.instep_tapi.hostile_kit import hostile
from tests.instep_tapi.small_provider_kit import SmallProvider, node
from tests.json_names_kit import check_names

pytestmark = pytest.mark.asyncio


async def instep(*arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "instep.cli",
        "conformance",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def provider(deviates: str = "", tapi: str = "2.1.3") -> Provider:
    context = topology_context("sndlib/polska", services=3, tapi=tapi)
    faults = Faults(deviates=deviates, storm_changes_per_s=20.0)
    return Provider(context, ProviderSettings().of_edition(tapi), faults=faults)


@pytest.mark.parametrize("tapi", ["2.1.3", "2.6"])
async def test_a_provider_that_conforms(tapi: str) -> None:
    async with provider(tapi=tapi) as served:
        # As short as it goes: three connections after each other, and a last reading.
        code, out, err = await instep(
            "tapi", served.url, "--minutes", "0.08", "--active", "--format", "json"
        )
    check_names(["conformance", "tapi"], out)
    report = json.loads(out)
    assert (code, report["conforms"], report["edition"]) == (0, True, tapi)
    assert [one["rule"] for one in report["rules"] if one["status"] == "broken"] == []
    seen = {one["rule"] for one in report["rules"] if one["status"] == "held"}
    assert {"tapi-token", "tapi-at-least-once", "tapi-start-oldest", "tapi-order"} <= seen
    assert report["connections"] >= 4
    # Each step is told before it is done, and nothing of it is in the report.
    assert "goes on with the last token" in err
    assert "reads the log once more" in err
    # Little comes in so short a time: the report does not hide that nothing was slow.
    assert all("the provider did not feel a slow client" in one for one in report["notes"])


async def test_a_break_is_shown_with_its_evidence_in_every_form(tmp_path: Path) -> None:
    trace, html, junit = tmp_path / "t.jsonl", tmp_path / "r.html", tmp_path / "r.xml"
    async with provider("swapped") as served:
        code, out, _ = await instep(
            *("tapi", served.url, "--minutes", "0.03"),
            *("--trace", str(trace), "--html", str(html), "--junit", str(junit)),
        )
    assert code == 1
    assert "✗ broken" in out
    assert "which passed it over" in out
    assert "It does not conform" in out
    page = html.read_text()
    assert "Does not conform" in page
    assert '<article class="broken" id="tapi-order">' in page
    assert "<svg" in page
    assert "<script" not in page
    assert "src=" not in page
    assert "url(" not in page
    suites = ET.fromstring(junit.read_bytes())
    failed = [
        case.get("name", "") for case in suites.iter("testcase") if case.find("failure") is not None
    ]
    assert len(failed) == 1
    assert failed[0].startswith("tapi-order (TR-548 3.11.2, 6.1.2)")
    # The same judges find the same in what was recorded.
    code, out, _ = await instep("trace", str(trace), "--protocol", "tapi", "--format", "json")
    assert code == 1
    assert [one["rule"] for one in json.loads(out)["rules"] if one["status"] == "broken"] == [
        "tapi-order"
    ]


async def test_a_login_is_in_no_trace(tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    async with provider() as served:
        url = served.url.replace("://", "://user:hidden@")
        await instep("tapi", url, "--token", "s3cr3t", "--minutes", "0.02", "--trace", str(trace))
        await instep(
            *("tapi", served.url, "--token", "s3cr3t", "--minutes", "0.02"),
            *("--trace", str(trace)),
        )
    written = trace.read_text()
    assert '"type":"frame"' in written
    assert "s3cr3t" not in written
    assert "hidden" not in written


async def test_what_cannot_be_read_is_an_error_and_no_verdict(tmp_path: Path) -> None:
    code, out, err = await instep("tapi", "http://127.0.0.1:9", "--minutes", "0.02")
    assert (code, out) == (1, "")
    assert "127.0.0.1:9" in err
    code, _, err = await instep("tapi", "http://127.0.0.1:9", "--tapi", "2.2")
    assert code == 2
    assert "write 2.1.3 or 2.6" in err
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"type":"frame"}\n')
    code, _, err = await instep("trace", str(bad), "--protocol", "tapi")
    assert code == 2
    assert "bad.jsonl:1" in err


async def test_a_trace_in_which_nothing_is_seen_is_no_proof(tmp_path: Path) -> None:
    """An empty file, one whose only event was written in part, and one of a run that saw nothing
    claim nothing: not that the provider conforms.
    """
    empty = tmp_path / "empty.jsonl"
    html = tmp_path / "empty.html"
    options = ("--protocol", "tapi", "--html", str(html))
    for content in ("", '{"type":"closed","at_us":1,"connection":1}\n{"type":"fra'):
        empty.write_text(content)
        code, out, _ = await instep("trace", str(empty), *options)
        assert code == 1
        assert "It was not judged: of 8" in out
        assert ("within line 2" in out) is bool(content)
        assert 'class="verdict unseen"' in html.read_text()
    code, out, _ = await instep("trace", str(empty), "--protocol", "tapi", "--format", "json")
    assert (code, json.loads(out)["conforms"]) == (1, None)


async def test_the_records_that_prove_a_break_are_shown_as_they_came() -> None:
    first, overtaken = node("b", 2), node("c", 1, second=1)
    small = SmallProvider("NODE", log=[node("a", 0), first, overtaken], storage="COMPACTED")
    async with hostile(small.serve) as url:
        code, out, err = await instep("tapi", url, "--minutes", "0.02", "--format", "json")
    assert code == 1, err
    found = {one["rule"]: one for one in json.loads(out)["rules"]}
    order = found["tapi-order"]
    assert order["status"] == "broken"
    assert [one["body"].encode() for one in order["evidence"]] == [first, overtaken]
