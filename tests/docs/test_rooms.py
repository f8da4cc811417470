"""The picture of a package's rooms shows every room and every import."""

from pathlib import Path

from docs.import_graph import packages, parse
from docs.rooms import described, reduced, rooms, source

REPOSITORY = Path(__file__).resolve().parents[2]
TREE = parse(
    {
        "instep/__init__.py": "from instep.runtime.x import A",
        "instep/errors.py": "",
        "instep/model/__init__.py": "from instep.model.records import Record",
        "instep/model/records.py": "import instep.errors",
        "instep/runtime/__init__.py": "",
        "instep/runtime/x.py": "from instep.model import records\nfrom instep import errors",
        "instep_sql/__init__.py": "from instep_sql.store import S",
        "instep_sql/store.py": "def f():\n    import instep.errors, instep.model.records",
    }
)


def edges(dot: str) -> list[str]:
    return [line.strip() for line in dot.splitlines() if " -> " in line]


def test_rooms_are_what_lies_right_below_the_package() -> None:
    assert rooms(TREE, "instep") == {
        "instep": {"runtime"},
        "errors": set(),
        "model": {"errors"},
        "runtime": {"errors", "model"},
    }


def test_an_edge_that_follows_from_others_is_left_out() -> None:
    edges = {"a": {"b", "c", "d"}, "b": {"c"}, "c": {"d"}, "e": {"d", "a"}}
    assert reduced(edges) == {"a": {"b"}, "b": {"c"}, "c": {"d"}, "e": {"a"}}


def test_a_cycle_is_shown() -> None:
    edges = {"a": {"b", "c"}, "b": {"a", "c"}, "c": set[str]()}
    assert reduced(edges) == edges


def test_every_room_has_a_box_and_every_import_is_described() -> None:
    dot = source(TREE, "instep", "")
    assert all(f'"{room}" [label=<<b>{room}</b>' in dot for room in rooms(TREE, "instep"))
    assert edges(dot) == ['"instep" -> "runtime"', '"model" -> "errors"', '"runtime" -> "model"']
    assert described(TREE, "instep").splitlines() == [
        "instep imports runtime",
        "model imports errors",
        "runtime imports errors",
        "runtime imports model",
    ]
    assert "uses errors, model" in source(TREE, "instep_sql", "")


def test_the_page_shows_each_package() -> None:
    page = (REPOSITORY / "docs/topics/architecture.md").read_text(encoding="utf-8")
    found = packages(REPOSITORY)
    assert found[0] == "instep"
    assert len(found) > 5
    assert [package for package in found if f"rooms-{package}.svg" not in page] == []
