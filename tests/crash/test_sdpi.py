"""A consumer of reports behind a relay that fails, killed; at full size by `make relay`."""

from __future__ import annotations

import random

import pytest

from tests.crash.sdpi import Report, Row, Truth, Witness, run


@pytest.mark.asyncio
@pytest.mark.timeout(300)
async def test_killed_behind_a_relay_it_is_never_wrong_and_equal_in_the_end() -> None:
    seed = random.randrange(10_000)
    report = await run(15, seed=seed, kill_every_s=4)
    print(f"seed {seed}: {report}")
    assert report.wrong == []
    assert report.differences == []
    assert report.kills > 0
    assert report.confirmed > 0
    assert report.looks_aligned > 0


@pytest.mark.parametrize(
    ("rows", "aligned", "wrong"),
    [
        ({"m1": Row((0, 2), "b")}, True, ""),
        ({"m1": Row((0, 1), "a")}, False, ""),
        ({"m1": Row((0, 1), "a")}, True, "aligned store has"),
        ({}, True, "not in a store that is aligned"),
        ({"m1": Row((0, 2), "x")}, True, "was never"),
    ],
)
def test_what_is_wrong_would_be_noticed(rows: dict[str, Row], aligned: bool, wrong: str) -> None:
    truth, report = Truth(), Report()
    truth.stated |= {("m1", (0, 1), "a"), ("m1", (0, 2), "b")}
    truth.confirm(
        b'<m:EpisodicMetricReport MdibVersion="2" SequenceId="s"><m:MetricState'
        b' DescriptorHandle="m1" StateVersion="2">'
    )
    Witness(truth, report).look(rows, truth.confirmed, aligned=aligned)
    assert (wrong in " ".join(report.wrong)) if wrong else not report.wrong


def test_a_step_back_would_be_noticed() -> None:
    truth, report = Truth(), Report()
    truth.stated |= {("m1", (0, 1), "a"), ("m1", (0, 2), "b")}
    witness = Witness(truth, report)
    witness.look({"m1": Row((0, 2), "b")}, {}, aligned=True)
    witness.look({"m1": Row((0, 1), "a")}, {}, aligned=False)
    assert "went back" in report.wrong[0]
    assert not report.good
