"""The picture of the rooms shows every room on its floor, and every import."""

from itertools import combinations
from xml.etree import ElementTree as ET

from docs.import_graph import parse
from docs.rooms import draw, floors, reduced, rooms

SVG = "{http://www.w3.org/2000/svg}"
TREE = parse(
    {
        "instep/__init__.py": "from instep.runtime.x import A",
        "instep/errors.py": "",
        "instep/model/__init__.py": "from instep.model.records import Record",
        "instep/model/records.py": "import instep.errors",
        "instep/runtime/__init__.py": "",
        "instep/runtime/x.py": "from instep.model import records\nfrom instep import errors",
        "instep/runtime/streams/__init__.py": "",
        "instep/runtime/streams/y.py": "",
        "instep_sql/__init__.py": "from instep_sql.store import S",
        "instep_sql/store.py": "def f():\n    import instep.errors, instep.model.records",
    }
)


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


def test_a_room_stands_above_all_that_it_imports() -> None:
    assert floors({"a": {"b", "c"}, "b": {"c"}}, {}) == {"c": 0, "b": 1, "a": 2}
    assert floors({"a": {"b"}, "b": set()}, {"b": 3}) == {"b": 3, "a": 4}


def test_every_room_has_a_box_and_every_import_is_described() -> None:
    root = ET.fromstring(draw(TREE))
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"errors", "model", "runtime", "instep_sql", "store"} <= set(texts)
    assert "uses errors, model" in texts
    assert "streams/, x" in texts
    assert (root.findtext(f"{SVG}desc") or "").splitlines() == [
        "instep: instep imports runtime",
        "instep: model imports errors",
        "instep: runtime imports errors",
        "instep: runtime imports model",
        "instep_sql: instep_sql imports store",
    ]


def test_no_box_covers_another() -> None:
    boxes = [
        tuple(float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        for rect in ET.fromstring(draw(TREE)).iter(f"{SVG}rect")
        if rect.get("rx") == "5"
    ]
    assert len(boxes) == 6
    for (ax, ay, aw, ah), (bx, by, bw, bh) in combinations(boxes, 2):
        assert ax + aw <= bx or bx + bw <= ax or ay + ah <= by or by + bh <= ay
