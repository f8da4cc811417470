"""Every public name of the SDK has a docstring of more than four words."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
SDK = REPOSITORY / "sdk" / "instep"
MODULES = sorted(
    path
    for path in SDK.rglob("*.py")
    if not any(part.startswith("_") for part in path.relative_to(SDK).with_suffix("").parts)
)
LEAST_WORDS = 5

Documented = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def exported(tree: ast.Module) -> set[str]:
    """The names in `__all__`."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def documented(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Public names, and public methods of public classes, with their docstrings."""
    names = exported(tree)
    for node in tree.body:
        if isinstance(node, Documented) and node.name in names:
            yield node.name, ast.get_docstring(node) or ""
            for member in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(member, Documented) and not member.name.startswith("_"):
                    yield f"{node.name}.{member.name}", ast.get_docstring(member) or ""


def short(tree: ast.Module) -> list[str]:
    """Names with a docstring shorter than a sentence; `See X` refers to the full text."""
    return [
        f"{name}: {text!r}"
        for name, text in documented(tree)
        if text and not text.startswith("See ") and len(text.split()) < LEAST_WORDS
    ]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SDK)))
def test_no_public_docstring_is_a_riddle(path: Path) -> None:
    assert short(ast.parse(path.read_bytes())) == []


PORTS = sorted((SDK / "ports").glob("[a-z]*.py"))


@pytest.mark.parametrize("path", PORTS, ids=lambda path: path.name)
def test_every_member_of_a_port_is_explained(path: Path) -> None:
    assert [name for name, text in documented(ast.parse(path.read_bytes())) if not text] == []


def test_a_riddle_is_found() -> None:
    source = '''
__all__ = ["A", "f"]
class A:
    """These came."""
    def b(self): "See `B`."
    def _c(self): "It."
    def d(self): "One, two, three, four."
def f(): "What it is, and why."
def g(): "No."
'''
    assert short(ast.parse(source)) == ["A: 'These came.'", "A.d: 'One, two, three, four.'"]
