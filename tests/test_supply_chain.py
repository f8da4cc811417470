"""What is installed: all is pinned; what decides whether a message is genuine, in the wheel too."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONSTRAINTS = (ROOT / "constraints.txt").read_text()
PINNED = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", CONSTRAINTS, re.MULTILINE))
DIDCOMM = {"aries-askar", "did-peer-2", "did-peer-4", "didcomm-messaging", "pydid"}


def test_the_wheel_pins_what_decides_whether_a_message_is_genuine() -> None:
    wanted = dict(
        re.fullmatch(r"([a-z0-9-]+)(?:\[.*\])?(.*)", each).groups()  # type: ignore[union-attr,misc]
        for each in PROJECT["optional-dependencies"]["didcomm"]
    )
    assert wanted == {name: f"=={PINNED[name]}" for name in DIDCOMM}


def test_every_pin_has_hashes_and_no_index() -> None:
    pins = re.split(r"^(?=[a-z0-9])", CONSTRAINTS, flags=re.MULTILINE)[1:]
    assert len(pins) > 60
    assert all(re.match(r"\S+==\S+", pin) and "--hash=sha256:" in pin for pin in pins)


@pytest.mark.parametrize(
    "name", ["Makefile", "constraints.txt", "pyproject.toml", ".ci/run", ".ci/wheel"]
)
def test_no_index_is_named(name: str) -> None:
    assert not re.search(r"--(extra-)?index-url|--find-links", (ROOT / name).read_text())


def test_nothing_but_the_pins_is_installed() -> None:
    # A resolver looks for the newest release of `coverage[toml]`, although `coverage` is pinned,
    # and ends where that release has no pin.
    assert "--no-deps --require-hashes -r constraints.txt" in (ROOT / "Makefile").read_text()


def test_the_pins_are_whole() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "check"],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
