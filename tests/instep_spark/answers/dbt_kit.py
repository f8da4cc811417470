"""`python -m tests.instep_spark.answers.dbt_kit FOLDER`: an environment with dbt-duckdb; it finds
this environment's packages behind its own.

dbt has an environment of its own: it and instep pin some packages otherwise. Newer releases of dbt
fetch a program from elsewhere when they are installed, so these are held back.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

PINNED = ("dbt-core==1.10.23", "dbt-duckdb==1.10.1", "duckdb==2.0.*")


def main(folder: Path) -> None:
    if not (folder / "bin/dbt").exists():
        venv.create(folder, with_pip=True)
        pip = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "--disable-pip-version-check", *PINNED], check=True)
    (own,) = folder.glob("lib/python*/site-packages")
    behind = [path for path in sys.path if Path(path).is_absolute() and "site-packages" in path]
    (own / "instep_behind.pth").write_text("\n".join([*behind, *_sources()]) + "\n")


def _sources() -> list[str]:
    repository = Path(__file__).resolve().parents[3]
    return [str(repository / name) for name in ("sdk", "adapters", "store", "spark_sink")]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
