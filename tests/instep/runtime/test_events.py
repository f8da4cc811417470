"""The table of events has every kind that the code tells, and no other."""

import ast
from collections.abc import Iterator
from pathlib import Path

from instep.alignment.effects import NoticeKind
from instep.runtime.events import EVENTS

SOURCES = Path(__file__).resolve().parents[3] / "sdk" / "instep"
TELLS = {"_emit", "emit", "_report", "report", "_tell", "ConsumerEvent"}


def told(tree: ast.AST) -> Iterator[str]:
    """The kinds in calls that tell an event: a text between the stream and the words."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in TELLS:
                # The last argument is the text.
                for argument in node.args[:-1]:
                    yield from words(argument)
        if isinstance(node, ast.FunctionDef) and node.name == "describe":
            for inner in ast.walk(node):
                if isinstance(inner, ast.Return) and isinstance(inner.value, ast.Tuple):
                    yield from words(inner.value.elts[0])


def words(node: ast.AST) -> Iterator[str]:
    """The texts that an expression may be, but the empty one."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value:
        yield node.value
    if isinstance(node, ast.IfExp):
        yield from words(node.body)
        yield from words(node.orelse)


def test_every_kind_that_is_told_is_in_the_table_and_the_reverse() -> None:
    found = {str(kind) for kind in NoticeKind}
    for path in SOURCES.rglob("*.py"):
        found |= set(told(ast.parse(path.read_text(encoding="utf-8"))))
    # Told by a name that a condition gives.
    found |= {"reloaded", "reload-refused"}
    assert found - {"second-connection-refused", "offsets-sparse"} == set(EVENTS)
