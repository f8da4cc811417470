"""What is installed: the wheel states minima, the constraints pin all, with hashes."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONSTRAINTS = (ROOT / "constraints.txt").read_text()
PINNED = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", CONSTRAINTS, re.MULTILINE))
SOURCES = [
    path.read_text()
    for top in ("sdk", "adapters", "store", "spark_sink")
    for path in (ROOT / top).rglob("*.py")
]


def canonical(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


def requirements(extra: str) -> list[str]:
    return [*PROJECT["optional-dependencies"][extra]] if extra else [*PROJECT["dependencies"]]


EXTRAS = [one for one in PROJECT["optional-dependencies"] if one != "all"]


def test_the_wheel_states_minima_and_no_more() -> None:
    wanted = [each for extra in ["", *EXTRAS] for each in requirements(extra)]
    assert [
        one for one in wanted if not re.fullmatch(r"[a-z0-9-]+(\[[a-z,-]+\])?>=[\d.]+", one)
    ] == []


def test_all_is_all_extras() -> None:
    assert requirements("all") == [f"instep[{','.join(EXTRAS)}]"]


@pytest.mark.parametrize("extra", ["", *EXTRAS])
def test_each_dependency_is_imported(extra: str) -> None:
    modules: dict[str, list[str]] = {}
    for module, names in packages_distributions().items():
        for name in names:
            modules.setdefault(canonical(name), []).append(module)
    for requirement in requirements(extra):
        name = re.split(r"[\[>]", requirement)[0]
        imported = re.compile(rf"^\s*(?:import|from) (?:{'|'.join(modules[name])})\b", re.MULTILINE)
        assert any(imported.search(text) for text in SOURCES), requirement


@pytest.mark.parametrize("extra", EXTRAS)
def test_each_extra_is_explained(extra: str) -> None:
    assert f"\n| `{extra}` |" in (ROOT / "docs/how-to/install.md").read_text()


def test_what_decides_whether_a_message_is_genuine_is_pinned() -> None:
    assert {re.split(r"[\[>]", one)[0] for one in requirements("didcomm")} <= {*PINNED}


def test_every_pin_has_hashes_and_no_index() -> None:
    pins = re.split(r"^(?=[a-z0-9])", CONSTRAINTS, flags=re.MULTILINE)[1:]
    assert len(pins) > 60
    assert all(re.match(r"\S+==\S+", pin) and "--hash=sha256:" in pin for pin in pins)


@pytest.mark.parametrize(
    "name",
    ["Makefile", "constraints.txt", "pyproject.toml", ".ci/run", ".ci/versions", ".ci/wheel"],
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


def built(folder: Path, files: list[str], mode: int) -> dict[str, str]:
    """Distributions of a copy of the checkout, with times and rights of its own."""
    source = folder / "source"
    for name in files:
        there = source / name
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, there)
        executable = os.access(ROOT / name, os.X_OK)
        there.chmod(mode | 0o111 if executable else mode)
    # The time of the commit, as the release has it.
    chosen = {**os.environ, "SOURCE_DATE_EPOCH": "1790000000"}
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist")]
    subprocess.run(
        [*command, str(source)], check=True, capture_output=True, timeout=100, env=chosen
    )
    found = (folder / "dist").iterdir()
    return {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in found}


def test_two_builds_have_the_same_bytes(tmp_path: Path) -> None:
    # Some 8 s: a distribution is built twice, from two folders.
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=False, capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("this is no checkout of git")
    files = [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    one = built(tmp_path / "one", files, 0o644)
    two = built(tmp_path / "some" / "other", files, 0o664)
    version = PROJECT["version"]
    assert {*one} == {f"instep-{version}.tar.gz", f"instep-{version}-py3-none-any.whl"}
    assert one == two


RELEASE = (ROOT / ".github/workflows/release.yml").read_text()


def test_the_release_names_no_host() -> None:
    assert not re.search(r"://|[a-z0-9-]+\.(com|org|io|net|dev)\b", RELEASE)


def test_the_release_has_provenance_and_no_password() -> None:
    jobs = yaml.safe_load(RELEASE)["jobs"]
    used = [
        step["uses"].partition("@")[0]
        for job in jobs.values()
        for step in job["steps"]
        if "uses" in step
    ]
    assert all(re.fullmatch(r"[\w-]+/[\w-]+", one) for one in used)
    assert {"pypa/gh-action-pypi-publish", "actions/attest-sbom"} <= {*used}
    assert "actions/attest-build-provenance" in used
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets" not in RELEASE
    # Whoever may publish runs nothing of the repository.
    assert not any("run" in step for step in jobs["publish"]["steps"])


def test_each_verb_of_the_release_is_one_of_the_makefile() -> None:
    verbs = re.findall(r"\bmake ([a-z]+)", RELEASE)
    assert len(verbs) >= 3
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{verb}:", makefile, re.MULTILINE) for verb in verbs)
