"""Where `instep lake run` tells how far it is. Needs no Spark."""

import pytest
from rich.console import Console

from instep.cli.output import Format
from instep_spark.cli.lake import _view
from instep_spark.lake.lake import RunProgress


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
