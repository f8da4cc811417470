"""Configurations that change under a storm; `make reloads` makes a thousand of them."""

from pathlib import Path

from tests.crash.reloads import reload_rounds


def test_reloads_close_no_connection_and_read_nothing_twice(tmp_path: Path) -> None:
    report = reload_rounds(15, seed=3, folder=tmp_path)
    assert report.faults == []
    assert (report.changes.total(), report.refused) == (15, 1)
