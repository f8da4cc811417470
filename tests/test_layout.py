"""The rules of the tree: imports point down, packages are typed."""

import re
import subprocess
import tomllib
from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path

import pytest

from docs.import_graph import Tree, parse, read
from tests.layout_kit import (
    decisions_are_pure,
    entries,
    every_room_has_a_floor,
    modules_form_no_circle,
    only_the_engine_knows_the_database,
    packages_import_the_core_only,
    rooms_form_no_circle,
    rooms_import_downwards,
)

# One process reads the imports of all sources, which takes some seconds.
pytestmark = pytest.mark.xdist_group("prose")

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGES = {
    init.parent.name: init.parent
    for folder in ("sdk", "adapters", "store", "spark_sink")
    for init in sorted((REPOSITORY / folder).glob("*/__init__.py"))
}
ADAPTERS = {name for name, path in PACKAGES.items() if path.parent.name == "adapters"}
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


LAWS: dict[str, Callable[[Tree], list[str]]] = {
    "rooms_import_downwards": rooms_import_downwards,
    "every_room_has_a_floor": every_room_has_a_floor,
    "decisions_are_pure": decisions_are_pure,
    "packages_import_the_core_only": partial(packages_import_the_core_only, adapters=ADAPTERS),
    "modules_form_no_circle": modules_form_no_circle,
    "rooms_form_no_circle": rooms_form_no_circle,
}


@pytest.mark.parametrize("law", LAWS)
def test_the_tree_keeps_the_law(law: str) -> None:
    assert LAWS[law](read(REPOSITORY)) == []


def core(**rooms: str) -> dict[str, str]:
    """Sources of a small core: a package and one module `x` for each room."""
    return {"instep/__init__.py": ""} | {
        path: text
        for room, code in rooms.items()
        for path, text in ((f"instep/{room}/__init__.py", ""), (f"instep/{room}/x.py", code))
    }


ROOMS = ("alignment", "sequencing", "ports", "runtime", "cli", "testing")


@pytest.mark.parametrize(
    ("room", "code"),
    [
        ("alignment", "from instep.sequencing.x import a"),
        ("alignment", "import instep.ports"),
        ("sequencing", "from instep.alignment import x"),
        ("sequencing", "from ..alignment import x"),
        (
            "ports",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import instep.runtime.x",
        ),
        ("runtime", "def f():\n    from instep.cli.x import a"),
        ("runtime", "from instep.testing.x import a"),
        ("cli", "from instep.testing import x"),
        ("runtime", "from instep import Consumer"),
        ("runtime", "import instep"),
    ],
)
def test_an_import_upwards_or_sideways_is_found(room: str, code: str) -> None:
    sources = core(**dict.fromkeys(ROOMS, "")) | {f"instep/{room}/x.py": code}
    (broken,) = rooms_import_downwards(parse(sources))
    assert broken.startswith(f"instep.{room}.x:")


def test_a_facade_and_lower_floors_may_be_imported() -> None:
    rooms = {
        "model": "",
        "alignment": "from instep.model import x\nfrom instep.alignment.y import a",
        "cli": "from instep.runtime.x import a",
        "runtime": "from instep.alignment import x",
        "testing": "from instep.ports import x",
        "ports": "",
    }
    facade = {"instep/__init__.py": "from instep.runtime.x import a", "instep/alignment/y.py": ""}
    assert rooms_import_downwards(parse(core(**rooms) | facade)) == []


def test_a_room_without_a_floor_is_found() -> None:
    assert every_room_has_a_floor(parse(core(attic=""))) == ["instep.attic is on no floor"]


@pytest.mark.parametrize("room", ["model", "alignment", "sequencing", "coordination"])
@pytest.mark.parametrize(
    "code",
    [
        "import asyncio",
        "from time import monotonic",
        "import random as r",
        "def f():\n    import socket",
        "import sqlalchemy.ext.asyncio",
        "import typing\nif typing.TYPE_CHECKING:\n    from aiohttp import web",
        "try:\n    import sqlite3\nexcept ImportError:\n    sqlite3 = None",
        "class A:\n    from datetime import datetime",
    ],
)
def test_io_and_clocks_below_the_ports_are_found(room: str, code: str) -> None:
    (broken,) = decisions_are_pure(parse(core(**{room: code})))
    assert broken.startswith(f"instep.{room}.x:")


def test_io_and_clocks_from_the_ports_up_are_allowed() -> None:
    code = "import asyncio, time, aiohttp"
    assert decisions_are_pure(parse(core(ports=code, runtime=code, alignment="import re"))) == []


@pytest.mark.parametrize(
    ("importer", "target"),
    [
        ("instep/x.py", "instep_sql"),
        ("instep_tapi/x.py", "instep_sql.x"),
        ("instep_tapi/x.py", "instep_didcomm"),
        ("instep_tapi/x.py", "instep_tapi_provider"),
        ("instep_tapi_provider/x.py", "instep_sql"),
        ("instep_sql/x.py", "instep_http"),
        ("instep_http/x.py", "instep_soap"),
        ("instep_http/x.py", "instep_tapi"),
    ],
)
def test_an_import_across_packages_is_found(importer: str, target: str) -> None:
    adapters = {"instep_http", "instep_soap", "instep_tapi", "instep_tapi_provider"}
    adapters |= {"instep_didcomm"}
    names = {"instep", "instep_sql"} | adapters
    sources = {f"{name}/{file}.py": "" for name in names for file in ("__init__", "x")}
    allowed = {
        "instep_tapi/x.py": "import instep_http, instep_soap.x, instep.x, re",
        "instep_tapi_provider/x.py": "import instep_tapi.x, instep_http",
    }
    assert packages_import_the_core_only(parse(sources | allowed), adapters) == []
    bad = sources | {importer: f"def f():\n    import {target}"}
    (broken,) = packages_import_the_core_only(parse(bad), adapters)
    assert broken.endswith(f"imports {target}")


@pytest.mark.parametrize(
    "sources",
    [
        {"a.py": "import b", "b.py": "import c", "c.py": "import a"},
        {"a.py": "import b", "b.py": "def f():\n    import a"},
        {"a.py": "import b", "b.py": "from typing import TYPE_CHECKING as T\nif T:\n    import a"},
        # b.y runs b/__init__ first, which needs a.
        {"a.py": "import b.y", "b/__init__.py": "import a", "b/y.py": ""},
        {"p/__init__.py": "from p.a import x", "p/a.py": "from p import y"},
        {"p/__init__.py": "", "p/a.py": "from . import b", "p/b.py": "from .a import x"},
    ],
)
def test_a_circle_of_modules_is_found(sources: dict[str, str]) -> None:
    (circle,) = modules_form_no_circle(parse(sources))
    assert circle.count(" <- ") >= 2


def test_a_facade_of_its_own_modules_is_no_circle() -> None:
    sources = {"p/__init__.py": "from p.a import x", "p/a.py": "from p.b import y", "p/b.py": ""}
    assert modules_form_no_circle(parse(sources)) == []


@pytest.mark.parametrize("folder", ["p", "p/q", "p/q/r"])
def test_a_circle_of_rooms_is_found_at_any_depth(folder: str) -> None:
    place = folder.replace("/", ".")
    files = {
        "a/x": f"import {place}.b.y",
        "b/y": "",
        "b/z": f"import {place}.a.w",
        "a/w": "",
    }
    tree = parse({f"{folder}/{name}.py": text for name, text in files.items()})
    assert modules_form_no_circle(tree) == []
    assert rooms_form_no_circle(tree) == [f"{place}.a <- {place}.b <- {place}.a"]


def test_a_module_is_a_room_and_so_is_a_facade() -> None:
    beside = {"p/a.py": "import p.b.y", "p/b/y.py": "", "p/b/z.py": "import p.a"}
    assert rooms_form_no_circle(parse(beside)) == ["p.a <- p.b <- p.a"]
    facade = {"p/b/__init__.py": "import p.b.x.y", "p/b/x/y.py": "", "p/b/x/z.py": "import p.b"}
    assert rooms_form_no_circle(parse(facade)) == ["p.b <- p.b.x <- p.b"]


MAY_KNOW_THE_DATABASE = (
    "store/instep_sql/engine/",
    # A revision makes the tables of one database.
    "store/instep_sql/migrations/",
    # Reads the URL, before there is a dialect.
    "store/instep_sql/options.py",
)


def test_only_the_engine_knows_the_database() -> None:
    shipped = {
        str(path.relative_to(REPOSITORY)): path.read_bytes()
        for package in PACKAGES.values()
        for path in package.rglob("*.py")
    }
    others = {
        path: text for path, text in shipped.items() if not path.startswith(MAY_KNOW_THE_DATABASE)
    }
    assert only_the_engine_knows_the_database(others) == []


@pytest.mark.parametrize(
    "code",
    [
        'if connection.dialect.name == "sqlite":\n    pass',
        "kind = self._engine.dialect.name",
        "def f(dialect):\n    return dialect.name",
        'found = kind in {"sqlite", "postgresql"}',
        'words = {"sqlite": 1, "postgresql": 2}[kind]',
        'match kind:\n    case "sqlite":\n        pass',
        "mark = connection.dialect.paramstyle",
        "kind = make_url(url).get_backend_name()",
    ],
)
def test_a_branch_by_the_database_is_found(code: str) -> None:
    assert only_the_engine_knows_the_database({"x.py": f"import a\n{code}"})


def test_a_word_for_the_reader_is_no_branch() -> None:
    code = 'hint = "sqlite:///network.db"\nname = self._dialect.where\nkinds = ["sqlite"]'
    assert not only_the_engine_knows_the_database({"x.py": code})


def test_the_core_shows_at_most_fourteen_names() -> None:
    assert len(list(entries(path.name for path in PACKAGES["instep"].iterdir()))) <= 14


def test_only_what_a_tool_left_is_no_entry() -> None:
    assert list(entries(["model", "__pycache__", ".DS_Store", "__init__.py"])) == [
        "model",
        "__init__.py",
    ]


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
