"""The wheel works with each Python that it promises, where the machine has the interpreter.

These are long: each makes an environment of its own and installs into it. `make newest
PYTHON=python3.13` runs the whole suite there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROMISED = re.findall(
    r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text()
)


def interpreter(version: str) -> str | None:
    """A program of this version: of the path, or of pyenv."""
    folder = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    kept = [path / "bin" / "python" for path in folder.glob(f"{version}.*")]
    for path in [shutil.which(f"python{version}"), *map(str, kept)]:
        asked = [path or "", "-c", "import sys, venv, ensurepip; print(sys.version)"]
        if path:
            done = subprocess.run(asked, check=False, capture_output=True, text=True)
            if done.returncode == 0 and done.stdout.startswith(f"{version}."):
                return path
    return None


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True)
    return next(folder.glob("*.whl"))


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", PROMISED)
def test_an_example_runs_from_the_wheel(version: str, wheel: Path, tmp_path: Path) -> None:
    found = interpreter(version)
    if found is None:
        pytest.skip(f"this machine has no Python {version}")
    subprocess.run([found, "-m", "venv", str(tmp_path / "venv")], check=True)
    pins = re.findall(r"^\S+==\S+", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    (tmp_path / "pins.txt").write_text("\n".join(pins))
    python = str(tmp_path / "venv" / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "--constraint", "pins.txt"]
    subprocess.run([*install, f"{wheel}[simulator]"], check=True, cwd=tmp_path)
    for name in ("simulation.py", "outbox.py"):
        shutil.copy(ROOT / "examples" / name, tmp_path)
    done = subprocess.run(
        [python, "outbox.py"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "events are published" in done.stdout
