"""The rules of the tree: imports point down, packages are typed."""

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGES = {
    init.parent.name: init.parent
    for folder in ("sdk", "adapters", "store", "spark_sink")
    for init in sorted((REPOSITORY / folder).glob("*/__init__.py"))
}
SOAP_PROTOCOLS = {"instep_wsrm", "instep_wsr", "instep_sdpi"}
REFUSED = re.compile(
    r"pypi[.]org|pythonhosted[.]org|npmjs[.]org|deb[.]debian[.]org"  # a registry's host
    r"|/wor[k]/(?:main|shared)|/tmp/pla[n]|/opt/pyp[i]"  # a path of one machine
)


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("not a checkout of git: which files belong to the project is not known")
    paths = (REPOSITORY / name for name in listed.stdout.decode().split("\0") if name)
    return [path for path in paths if path.is_file()]


def imported(path: Path) -> Iterator[str]:
    """The top-level names of the packages that a module imports, at any depth of its code."""
    for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


@pytest.mark.parametrize("name", PACKAGES)
def test_imports_point_down(name: str) -> None:
    allowed = {"instep", name} | ({"instep_soap"} if name in SOAP_PROTOCOLS else set())
    upward = {
        f"{path.relative_to(REPOSITORY)} imports {other}"
        for path in PACKAGES[name].rglob("*.py")
        for other in imported(path)
        if other in PACKAGES and other not in allowed
    }
    assert not upward


def test_imports_are_found_at_any_depth(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("import a.b as c\ndef f():\n    from d.e import g\n    from .h import i\n")
    assert set(imported(module)) == {"a", "d"}


@pytest.mark.parametrize("name", PACKAGES)
def test_every_package_is_typed_and_shipped(name: str) -> None:
    assert (PACKAGES[name] / "py.typed").is_file()
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    shipped = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert str(PACKAGES[name].relative_to(REPOSITORY)) in shipped


def test_nothing_names_a_registry_or_a_machine() -> None:
    found = chain.from_iterable(
        (
            f"{path.relative_to(REPOSITORY)}: {match.group()}"
            for match in REFUSED.finditer(path.read_text(encoding="utf-8", errors="replace"))
        )
        for path in tracked()
    )
    assert not list(found)


@pytest.mark.parametrize("parts", [("https://pypi", "org/simple"), ("x.pythonhosted", "org")])
def test_a_registry_is_found(parts: tuple[str, str]) -> None:
    assert REFUSED.search(".".join(parts))


def test_the_pins_are_hashed_and_name_no_index() -> None:
    pins = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8")
    pinned = re.split(r"\n(?=\S)", pins.strip())
    assert all("==" in pin and "--hash=sha256:" in pin for pin in pinned)
    assert not re.search(r"index-url|find-links|://", pins)
