"""The documentation of the structure is true: rules, files, tests and names that it cites exist."""

import re
from pathlib import Path

import pytest

from docs.import_graph import FOLDERS, parse, read
from tests.docs.architecture_kit import (
    QUOTED,
    Row,
    cited,
    cites,
    dotted_names,
    exists,
    items,
    names_of,
    prose,
    table,
    text_of,
)

# Where the comments and the imports of all sources are read, which takes long, one process does it.
pytestmark = pytest.mark.xdist_group("prose")

REPOSITORY = Path(__file__).resolve().parents[2]
TOPICS = REPOSITORY / "docs" / "topics"
ARCHITECTURE = (TOPICS / "architecture.md").read_text(encoding="utf-8")
ROWS = table(ARCHITECTURE)
PAGES = {page.name: page.read_text(encoding="utf-8") for page in sorted(TOPICS.glob("*.md"))}
RULES = {tag: text for page in PAGES.values() for tag, text in items(page).items()}
ALL_RULES = [
    *(f"A{n}" for n in range(1, 23)),
    *(f"S{n}" for n in range(1, 15)),
    "L1",
    "L2",
    "L3",
    "L4",
    "L5",
    "L6",
    "L7",
]
SOURCES = {
    path: path.read_text(encoding="utf-8")
    for folder in (*FOLDERS, "tests", "examples", "docs", "bench")
    for path in sorted((REPOSITORY / folder).rglob("*.py"))
    if "_build" not in path.parts
}
MARKDOWN = {
    path: path.read_text(encoding="utf-8")
    for path in (*sorted(REPOSITORY.glob("*.md")), *sorted((REPOSITORY / "docs").rglob("*.md")))
    if "_build" not in path.parts
}
# Dotted names that are no module: files, groups of entry points, loggers, properties and
# columns of tables.
OTHER_NAMES = {
    *("instep.toml", "instep.schema.json", "instep.service"),
    *("instep.sources", "instep.sinks", "instep.verifiers", "instep.commands", "instep.rules"),
    "instep.derivations",
    "instep.targets",
    *("instep.tapi", "instep.didcomm", "instep.lake", "instep.schema"),
    "instep_entity.proven",
    # Spans of traces.
    *("instep.process", "instep.read_ahead", "instep.receive", "instep.queue"),
    *("instep.commit", "instep.handle"),
}
OUTSIDE = re.compile(
    r"\bDESIGN(?:\.md|\s+\d|,)|\banchors\.md|\bfield[- ]notes\b|\breview/\w|\bspec/\w"
    r"|\.\./shared/(?!data)"
)


def where(path: Path, line: int = 0) -> str:
    return f"{path.relative_to(REPOSITORY)}:{line}" if line else str(path.relative_to(REPOSITORY))


def test_every_rule_has_one_text_and_one_row() -> None:
    assert sorted(RULES) == sorted(ALL_RULES)
    assert [row.tag for row in ROWS] == ALL_RULES
    assert sum(len(items(page)) for page in PAGES.values()) == len(ALL_RULES)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.tag)
def test_a_row_names_what_is_there(row: Row) -> None:
    assert row.anchor == row.tag.lower()
    assert row.tag in items(PAGES[row.page])
    for name in row.functions:
        assert cites(name, row.tag), f"{name} does not cite {row.tag}"
    for name in row.tests:
        text_of(name)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.tag)
def test_a_row_states_what_is_not_built_as_the_rule_does(row: Row) -> None:
    assert ("Not yet built:" in RULES[row.tag]) == (row.in_part or not row.built)
    assert bool(row.functions) == row.built
    assert not (row.in_part and not row.built)


def test_every_path_of_the_page_exists() -> None:
    paths = {quoted.partition("::")[0] for quoted in QUOTED.findall(ARCHITECTURE) if "/" in quoted}
    assert len(paths) > 60
    assert [path for path in sorted(paths) if not (REPOSITORY / path).exists()] == []


def test_every_cited_test_exists() -> None:
    cited_tests = {
        (path, quoted)
        for path, text in MARKDOWN.items()
        for quoted in QUOTED.findall(text)
        if quoted.startswith("tests/") and "::" in quoted
    }
    assert len(cited_tests) > 80
    broken = [
        f"{where(path)} cites {quoted}"
        for path, quoted in sorted(cited_tests)
        for file, _, test in [quoted.partition("::")]
        for source in [SOURCES.get(REPOSITORY / file, "")]
        if not re.search(rf"^(?:async )?def {test}\(", source, re.MULTILINE)
    ]
    assert broken == []


def test_every_cited_rule_has_an_anchor() -> None:
    broken = [
        f"{where(path, line)} cites {tag}"
        for path, source in SOURCES.items()
        for line, tag in cited(source)
        if tag not in RULES
    ]
    broken += [
        f"{where(path)} cites {tag}"
        for path, text in MARKDOWN.items()
        for tag in re.findall(r"\b[Rr]ules? ([ASL]\d+)|\(([ASL]\d+)\)", text)
        if set(tag) - {""} - RULES.keys()
    ]
    assert broken == []


def test_every_dotted_name_in_prose_exists() -> None:
    tree = read(REPOSITORY)
    names = {
        name: names_of((REPOSITORY / path).read_text(encoding="utf-8"))
        for path, name in _modules().items()
    }
    texts = [(where(path), text) for path, text in MARKDOWN.items()]
    texts += [
        (where(path, line), text)
        for path, source in SOURCES.items()
        for line, text in prose(source)
    ]
    broken = {
        f"{place}: {name}"
        for place, text in texts
        for name in dotted_names(text)
        if name not in OTHER_NAMES and not exists(name, tree, names)
    }
    assert broken == set()


def test_nothing_cites_a_document_outside_the_repository() -> None:
    texts = {**SOURCES, **MARKDOWN}
    del texts[Path(__file__).resolve()]
    broken = [
        f"{where(path)}: {match.group()}"
        for path, text in texts.items()
        for match in OUTSIDE.finditer(text)
    ]
    assert broken == []


def _modules() -> dict[str, str]:
    """Path of each module of the packages → its dotted name."""
    return {
        path.relative_to(REPOSITORY).as_posix(): path.relative_to(REPOSITORY / folder)
        .as_posix()
        .removesuffix(".py")
        .removesuffix("/__init__")
        .replace("/", ".")
        for folder in FOLDERS
        for path in (REPOSITORY / folder).rglob("*.py")
    }


# The laws above are seen to fail.


def test_a_citation_is_found_in_a_docstring_a_comment_and_a_name() -> None:
    source = '"""By A3 (S2)."""\nX = "A4"  # L1\ndef test_a17_x(): ...\n'
    assert sorted(cited(source)) == [(1, "A3"), (1, "S2"), (2, "L1"), (3, "A17")]


def test_a_comment_is_one_beside_strings_and_not_in_them() -> None:
    source = (
        "a = '# no' + \"it's # no\"  # it's A1\nb = '\\'# no'  # A2\n"
        'c = """\n# no " # no\n"""  # A3\nd = f"{a!r:#} # no"\n# A4\n'
        "if a:\n    # A5\n    try:\n        'A6'\n    except E:\n        'A7'\n"
    )
    assert sorted(prose(source)) == [
        (1, "# it's A1"),
        (2, "# A2"),
        (5, "# A3"),
        (7, "# A4"),
        (9, "# A5"),
        (11, "A6"),
        (13, "A7"),
    ]


def test_a_rule_is_an_item_with_an_anchor() -> None:
    page = "# A\n\n- [**A1. One**]{#a1} and\n  more.\n- [**A2.**]{#a2} x\n\nNot A3.\n"
    assert items(page) == {
        "A1": "- [**A1. One**]{#a1} and\n  more.",
        "A2": "- [**A2.**]{#a2} x",
    }


def test_a_row_is_read() -> None:
    text = "| [A2](x.md#a2) in part | `a/b.py::c`<br>`d.py::E.f` | `t.py::test_x` |\n"
    (row,) = table(text + "| [A16](x.md#a16) | not yet | not yet |\n")[:1]
    assert (row.in_part, row.functions) == (True, ("a/b.py::c", "d.py::E.f"))
    assert row.tests == ("t.py::test_x",)
    assert not table("| [A16](x.md#a16) | not yet | not yet |\n")[0].built


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("instep.a", True),
        ("instep.a.B", True),
        ("instep.a.B.c", True),
        ("instep.B", True),
        ("instep.B.c", True),
        ("instep.gone", False),
        ("instep.a.gone", False),
        ("instep.a.B.gone", False),
    ],
)
def test_a_name_that_is_not_there_is_found(name: str, there: bool) -> None:
    sources = {"instep/__init__.py": "from instep.a import B", "instep/a.py": "class B:\n    c = 1"}
    names = {
        "instep": names_of(sources["instep/__init__.py"]),
        "instep.a": names_of(sources["instep/a.py"]),
    }
    assert exists(name, parse(sources), names) is there


@pytest.mark.parametrize(
    "parts", [("see DESIGN", ".md"), ("(DESIGN", " 4)"), ("tapi-field", "-notes")]
)
def test_an_outside_document_is_found(parts: tuple[str, str]) -> None:
    assert OUTSIDE.search("".join(parts))
