"""Where `instep lake run` tells how far it is. Needs no Spark."""

import json

import pytest
from rich.console import Console

from instep.cli.output import Format
from instep_spark.cli.lake import _view
from instep_spark.lake.lake import RunProgress
from instep_spark.lake.pipeline import PipelineStep
from instep_spark.lake.sweeps import LakeSweep


@pytest.mark.parametrize("on_terminal", [False, True])
def test_a_pipe_gets_the_lines_wherever_stderr_goes(
    on_terminal: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console(stderr=True, force_terminal=on_terminal)
    with _view(console, Format.TABLE) as view:
        view.run(RunProgress(5, None))
    told = capsys.readouterr()
    assert "5 behind; no table was moved; end\n" in told.out
    assert not told.err


def test_a6_a_sweep_tells_what_it_removed(capsys: pytest.CaptureFixture[str]) -> None:
    swept = (LakeSweep("network", 2, removed=1_200), LakeSweep("alarms", 3, removed=0))
    step = PipelineStep("entities", 0, swept=swept)
    for output in (Format.TABLE, Format.JSONL):
        with _view(Console(stderr=True), output) as view:
            view.step(step)
    in_words, as_json = capsys.readouterr().out.splitlines()
    assert in_words == "network: the sweep of attempt 2 removed 1,200 entities"
    assert json.loads(as_json)["swept"] == [
        {"stream": "network", "attempt": 2, "removed": 1_200},
        {"stream": "alarms", "attempt": 3, "removed": 0},
    ]
