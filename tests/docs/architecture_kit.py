"""Reads what the documentation states about the code, as data: rules, citations, and dotted
names.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Final

from docs.import_graph import Tree

REPOSITORY: Final = Path(__file__).resolve().parents[2]
TAG = re.compile(r"\b[ASL]\d{1,2}\b")
ANCHOR = re.compile(r"\]\{#([asl]\d{1,2})\}")
TEST_NAME = re.compile(r"\bdef test_([asl]\d{1,2})_")
ROW = re.compile(
    r"^\| \[([ASL]\d{1,2})\]\(([\w.]+)#(\w+)\)( in part)? \| (.+) \| (.+) \|$", re.MULTILINE
)
# Strings first: what looks like a comment in one is none. `tokenize` takes twenty times as long.
_STRING_OR_COMMENT = re.compile(
    r'''"""(?:[^\\]|\\.)*?"""|\'{3}(?:[^\\]|\\.)*?\'{3}'''
    r"""|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|(?P<comment>\#[^\n]*)""",
    re.DOTALL,
)
QUOTED = re.compile(r"`([^`\n]+)`")
DOTTED = re.compile(r"(?<![\w./@-])(instep(?:_[a-z]+)?(?:\.\w+)+)(?![\w/])")


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table of rules."""

    tag: str
    page: str
    anchor: str
    in_part: bool
    functions: tuple[str, ...]
    """`file::function`, as the tests are named."""
    tests: tuple[str, ...]
    built: bool


def table(markdown: str) -> list[Row]:
    """The rows of the table of rules. A row without a function says "not yet"."""
    return [
        Row(
            tag,
            page,
            anchor,
            bool(in_part),
            tuple(QUOTED.findall(functions)),
            tuple(QUOTED.findall(tests)),
            functions != "not yet",
        )
        for tag, page, anchor, in_part, functions, tests in ROW.findall(markdown)
    ]


def items(markdown: str) -> dict[str, str]:
    """The rules of a page: tag → the text of its list item."""
    found = {}
    for item in re.split(r"\n(?=- |\n)", markdown):
        if anchor := ANCHOR.search(item):
            found[anchor.group(1).upper()] = item
    return found


@cache
def prose(source: str) -> tuple[tuple[int, str], ...]:
    """The comments and the bare strings (docstrings) of a module, each with its first line."""
    return tuple(_prose(source))


def _prose(source: str) -> Iterator[tuple[int, str]]:
    yield from _bare_strings(ast.parse(source).body)
    line, read = 1, 0
    for found in _STRING_OR_COMMENT.finditer(source):
        if comment := found["comment"]:
            line, read = line + source.count("\n", read, found.start()), found.start()
            yield line, comment


def _bare_strings(body: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    for node in body:
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text
            case ast.stmt() | ast.excepthandler() | ast.match_case():
                inner = (child for child in ast.iter_child_nodes(node))
                # Most of a tree are expressions, and none holds a statement.
                yield from _bare_strings(one for one in inner if not isinstance(one, ast.expr))


@cache
def cited(source: str) -> tuple[tuple[int, str], ...]:
    """The tags in the prose and in the names of tests of a module, each with a line."""
    return tuple(_cited(source))


def _cited(source: str) -> Iterator[tuple[int, str]]:
    for line, text in prose(source):
        yield from ((line, tag) for tag in TAG.findall(text))
    for number, text in enumerate(source.splitlines(), 1):
        yield from ((number, tag.upper()) for tag in TEST_NAME.findall(text))


def definition(source: str, name: str) -> tuple[int, int]:
    """The first line of a function or a class, counted from 0, and the line behind it. Raises
    `LookupError`.
    """
    found: ast.AST = ast.parse(source)
    for part in name.split("."):
        inner = [one for one in ast.iter_child_nodes(found) if getattr(one, "name", "") == part]
        if not inner:
            raise LookupError(f"no {name}")
        found = inner[-1]
    assert isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    return found.lineno - 1, found.end_lineno or 0


def text_of(place: str) -> str:
    """The text of a definition, given as `file::name`. Raises `LookupError`."""
    path, _, name = place.partition("::")
    source = (REPOSITORY / path).read_text(encoding="utf-8")
    first, behind = definition(source, name)
    return "\n".join(source.splitlines()[first:behind])


def cites(place: str, tag: str) -> bool:
    """Whether a function cites a rule, itself and not its file alone."""
    return tag in {found for _, found in cited(dedent(text_of(place)))}


def dotted_names(text: str) -> Iterator[str]:
    """`instep….x` in backticks, without a call's parentheses."""
    for quoted in QUOTED.findall(text):
        yield from DOTTED.findall(quoted)


def names_of(source: str) -> set[str]:
    """The names that a module defines or imports at its top level; of a class also its members."""
    found: set[str] = set()
    for node in ast.parse(source).body:
        found |= set(_bound(node))
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for part in node.body for name in _bound(part)}
    return found


def _bound(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            yield node.name
        case ast.Import() | ast.ImportFrom():
            yield from (alias.asname or alias.name for alias in node.names)
        case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=body):
            for part in body:
                yield from _bound(part)
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def exists(name: str, tree: Tree, names: Mapping[str, set[str]]) -> bool:
    """Whether a dotted name is a module, a name of one, or a member of a class of one.

    `names` has `names_of` each module. What a facade imports may have any member: those are the
    names of another module.
    """
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        module, rest = ".".join(parts[:cut]), parts[cut:]
        if module not in tree.modules:
            continue
        known = names[module]
        if not rest or ".".join(rest) in known:
            return True
        is_class_of_it = any(other.startswith(f"{rest[0]}.") for other in known)
        return len(rest) == 2 and rest[0] in known and not is_class_of_it
    return False
