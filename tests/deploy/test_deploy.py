"""The files in `deploy/` fit the command line, the distribution and the documentation."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.docs.snippets_kit import snippets
from tests.instep.cli.cli_kit import instep

REPOSITORY = Path(__file__).resolve().parents[2]
UNIT = REPOSITORY / "deploy" / "instep.service"
CONTAINERFILE = REPOSITORY / "deploy" / "Containerfile"
HADOLINT = Path(sys.executable).parent / "hadolint"


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Containerfile, each with its arguments on one line."""
    text = re.sub(r"^#.*\n", "", CONTAINERFILE.read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    found = [line.partition(" ") for line in lines if line.strip()]
    return [(name, arguments) for name, _, arguments in found]


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNIT)
    return parser


def assert_options_exist(words: list[str]) -> None:
    """Every option of an `instep` command is one that its help names."""
    shown = instep(words[0], "--help").stdout
    for word in words[1:]:
        assert not word.startswith("--") or word in shown, word


def test_the_page_shows_the_unit_as_it_is() -> None:
    page = (REPOSITORY / "docs" / "how-to" / "service.md").read_text(encoding="utf-8")
    [shown] = [one.text for one in snippets(page) if one.value == "instep.service"]
    assert shown == UNIT.read_text()


def test_the_unit_runs_a_command_that_is_there() -> None:
    program, *words = unit()["Service"]["ExecStart"].split()
    assert program.endswith("/instep")
    assert_options_exist(words)
    assert unit()["Service"]["RestartPreventExitStatus"] == "2"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_systemd_finds_no_mistake_in_the_unit(tmp_path: Path) -> None:
    # The program need not be installed where systemd looks for it.
    program = unit()["Service"]["ExecStart"].split()[0]
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace(program, str(shutil.which("true"))))
    told = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", str(copy)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    about_it = [line for line in told.stderr.splitlines() if UNIT.name in line]
    assert about_it == []


@pytest.mark.skipif(not HADOLINT.exists(), reason="hadolint is not made for this platform")
def test_a_linter_finds_no_mistake_in_the_containerfile() -> None:
    told = subprocess.run(
        [HADOLINT, CONTAINERFILE],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")


def test_the_container_is_built_from_what_is_there() -> None:
    found = instructions()
    assert [name for name, _ in found if name == "FROM"] == ["FROM", "FROM"]
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    for name, arguments in found:
        if name == "COPY" and "--from" not in arguments:
            source = arguments.split()[0]
            assert (REPOSITORY / source).exists()
        if name == "FROM":
            minor = re.search(r"python:(3\.\d+)-", arguments)
            assert minor
            assert f"Programming Language :: Python :: {minor[1]}" in project["classifiers"]
    [extras] = re.findall(r"\.whl\)\[([a-z,]+)\]", " ".join(part for _, part in found))
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()
    assert (REPOSITORY / "constraints.txt").exists()


def test_the_container_runs_as_nobody_special_and_its_command_is_there() -> None:
    found = dict(instructions())
    assert int(found["USER"]) >= 1000
    assert json.loads(found["ENTRYPOINT"]) == ["instep"]
    assert_options_exist(json.loads(found["CMD"]))
    assert found["ENV"] == "INSTEP_CONFIG=/etc/instep/instep.toml"
