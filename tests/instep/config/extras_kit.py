"""An environment in which no extra is installed, made of the one that has them all: the modules
that only extras bring are refused.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import Any, Final

__all__ = ["commands_without", "modules_of_extras", "run_without"]

_REFUSING: Final = """
import sys

# An import of it fails, and `importlib.util.find_spec` finds none, which other packages ask.
sys.modules.update(dict.fromkeys({modules!r}))
"""
_RUN: Final = """
import json, sys
from typer.testing import CliRunner
from instep.cli.app import app
for arguments in json.loads(sys.argv[1]):
    done = CliRunner().invoke(app, arguments)
    print(json.dumps([done.exit_code, done.stderr]))
"""


@cache
def modules_of_extras() -> frozenset[str]:
    """The top-level modules of all that no environment without extras has."""
    stated = requires("instep") or []
    core = {_name(one) for one in stated if "extra ==" not in one}
    extra = {_name(one) for one in stated if "extra ==" in one} - {"instep"}
    only = _with_what_they_need(extra) - _with_what_they_need(core)
    return frozenset(
        module
        for module, names in packages_distributions().items()
        if any(_name(name) in only for name in names)
    )


def run_without(modules: Iterable[str], folder: Path, code: str, *arguments: str) -> list[Any]:
    """The JSON lines that a program prints where these modules are not installed."""
    (folder / "sitecustomize.py").write_text(_REFUSING.format(modules=set(modules)))
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder), "INSTEP_CONFIG": ""},
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def commands_without(
    modules: Iterable[str], folder: Path, commands: Sequence[Sequence[str]]
) -> list[tuple[int, str]]:
    """The exit code and the errors of each of these commands, where the modules are missing."""
    return [(code, told) for code, told in run_without(modules, folder, _RUN, json.dumps(commands))]


def _with_what_they_need(names: Iterable[str]) -> set[str]:
    found: set[str] = set()
    ahead = list(names)
    while ahead:
        name = ahead.pop()
        if name in found:
            continue
        found.add(name)
        try:
            stated = requires(name) or []
        except PackageNotFoundError:  # for another system, or another Python
            continue
        ahead += [_name(one) for one in stated if "extra ==" not in one]
    return found


def _name(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None
    return re.sub(r"[-_.]+", "-", found[0]).lower()
