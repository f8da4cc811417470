"""`instep plugin new`: what it writes keeps the promises of a source, under any name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.instep.cli.cli_kit import failed, instep


def test_what_it_writes_passes_its_own_tests(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    told = instep("plugin", "new", "my-controller", "--folder", str(folder))
    assert told.exit_code == 0, told.output
    assert 'kind = "my_controller"' in told.stdout
    written = sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())
    assert written == [
        "README.md",
        "instep.toml",
        "my_controller/__init__.py",
        "my_controller/peer.py",
        "my_controller/plugin.py",
        "my_controller/source.py",
        "pyproject.toml",
        "tests/test_my_controller.py",
    ]
    assert not any("my_plugin" in one.read_text() for one in folder.rglob("*.*") if one.is_file())
    rules = ["--isolated", "--select", "E,F,W,B,UP", "--line-length", "100"]
    linted = subprocess.run(
        [sys.executable, "-m", "ruff", "check", *rules, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert linted.returncode == 0, linted.stdout
    # As its reader runs it, without installing: pytest alone, in the folder.
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."],
        cwd=folder,
        env={key: value for key, value in os.environ.items() if "PYTEST" not in key},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout[-4_000:]
    assert "failed" not in done.stdout


def test_its_kind_is_found_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert instep("plugin", "new", "mine", "--folder", str(tmp_path / "mine")).exit_code == 0
    folder = tmp_path / "mine"
    metadata = folder / "mine-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text("[instep.sources]\nmine = mine:source\n")
    monkeypatch.syspath_prepend(str(folder))
    checked = instep("check", str(folder / "instep.toml"))
    assert "port = 9000" in checked.output, checked.output
    wrong = (folder / "instep.toml").read_text().replace("port = 9000", "prt = 9000")
    (folder / "instep.toml").write_text(wrong)
    assert "did you mean 'port'?" in failed(instep("check", str(folder / "instep.toml")), 2)


@pytest.mark.parametrize(
    "name", ["1st", "a b", "class", "../x", "naïve", "", "a.b", "a_", "_a", "a" * 65]
)
def test_a_name_that_is_no_package_is_refused(name: str) -> None:
    assert "name of a package" in failed(instep("plugin", "new", name), 2)


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("tapi", "a kind of source that is installed"),
        ("asyncio", "a module of Python"),
        ("instep", "a module that is installed"),
        ("instep-sql", "a module that is installed"),
        ("tests", "the folder of its tests"),
    ],
)
def test_a_name_that_something_else_has_is_refused(name: str, taken: str, tmp_path: Path) -> None:
    told = failed(instep("plugin", "new", name, "--folder", str(tmp_path / "new")), 2)
    assert taken in told
    assert not (tmp_path / "new").exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("mine")
    told = failed(instep("plugin", "new", "mine", "--folder", str(tmp_path)), 2)
    assert "the folder is there already" in told
