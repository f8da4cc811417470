"""Writes the columns of the typed views of a lake from the YANG of TAPI:
`python -m docs.typed_columns FOLDER`, where the folder has the modules.

A column is a leaf, a leaf-list or a list of an entity, with all that other modules augment it
with. Containers are flattened into the name; a list stays JSON; entities within an entity have
records of their own (TR-548 3.10), so they are left out. The YANG itself is not part of the
project: what is made from it is committed, and a test compares both where the YANG is there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from pyang.context import Context
from pyang.repository import FileRepository
from pyang.types import EnumTypeSpec, IdentityrefTypeSpec, LeafrefTypeSpec

from instep.ports.lake import TypedClass, TypedColumn
from instep_tapi.facts.names import OBJECT_CLASSES, class_of
from instep_tapi.lake.derivation import TYPED_COLUMNS

__all__ = ["typed_classes", "write"]

_INTEGERS: Final = {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"}
_BODY: Final = ("stream-record", "log-record", "log-record-body")
_DETECTOR: Final = "condition-detector"
_SENTENCE: Final = re.compile(r"(?<=\.)\s")


def _children(statement: Any) -> Iterator[Any]:
    """The data nodes below; a choice and its cases are none."""
    for child in getattr(statement, "i_children", ()):
        if child.keyword in {"choice", "case"}:
            yield from _children(child)
        else:
            yield child


def _child(statement: Any, *names: str) -> Any:
    for name in names:
        statement = next(child for child in _children(statement) if child.arg == name)
    return statement


def _is_entity(statement: Any) -> bool:
    key = statement.keyword == "list" and statement.search_one("key")
    return bool(key) and key.arg == "uuid"


def _entities(statement: Any) -> Iterator[Any]:
    for child in _children(statement):
        if _is_entity(child):
            yield child
        yield from _entities(child)


class _Modules:
    """The modules of a folder, with all augmentations in their places."""

    def __init__(self, folder: Path) -> None:
        self.context = Context(FileRepository(str(folder), use_env=False))
        modules = [
            self.context.add_module(path.name, path.read_text("utf-8"))
            for path in sorted(folder.glob("*.yang"))
        ]
        self.context.validate()
        self.names = sorted(f"{m.arg}@{m.i_latest_revision}" for m in modules)
        self._identities = [i for m in modules for i in m.i_identities.values()]

    def classes(self) -> dict[str, TypedClass]:
        """Each class with its columns, by name."""
        tree = _child(self.context.get_module("tapi-common"), "context")
        record = _child(self.context.get_module("tapi-streaming"), *_BODY)
        found: dict[str, dict[str, TypedColumn]] = {}
        meanings: dict[str, str] = {}
        for entity in (*_entities(tree), _child(record, _DETECTOR)):
            name = class_of(entity.arg)
            if name not in OBJECT_CLASSES:
                continue
            meanings.setdefault(name, _meaning(entity))
            for column in self._columns(entity, ()):
                columns = found.setdefault(name, {})
                if columns.setdefault(column.name, column).path != column.path:
                    raise ValueError(f"two members of {name} give the column {column.name}")
        return {
            name: TypedClass(meanings[name], tuple(columns.values()))
            for name, columns in sorted(found.items())
        }

    def _columns(self, statement: Any, above: tuple[str, ...]) -> Iterator[TypedColumn]:
        for child in _children(statement):
            path = (*above, child.arg)
            if child.keyword == "container":
                yield from self._columns(child, path)
            elif child.keyword == "list" and not _is_entity(child):
                yield TypedColumn(_name(path), path, "JSON", meaning=_meaning(child))
            elif child.keyword in {"leaf", "leaf-list"}:
                kind, values = self._type(child.search_one("type"))
                unit = child.search_one("units")
                yield TypedColumn(
                    _name(path),
                    path,
                    f"ARRAY<{kind}>" if child.keyword == "leaf-list" else kind,
                    unit=unit.arg if unit else "",
                    values=values,
                    open=isinstance(_resolved(child), IdentityrefTypeSpec),
                    meaning=_meaning(child),
                )

    def _type(self, stated: Any) -> tuple[str, tuple[str, ...]]:
        spec = stated.i_type_spec
        if isinstance(spec, LeafrefTypeSpec):
            return self._type(spec.i_target_node.search_one("type"))
        if isinstance(spec, EnumTypeSpec):
            return "STRING", tuple(name for name, _ in spec.enums)
        if isinstance(spec, IdentityrefTypeSpec):
            bases = [base.i_identity for base in spec.idbases]
            return "STRING", tuple(sorted(i.arg for i in self._derived(bases)))
        if spec.name == "boolean":
            return "BOOLEAN", ()
        if spec.name == "uint64":
            return "DECIMAL(20,0)", ()
        if spec.name == "decimal64":
            return f"DECIMAL(19,{spec.fraction_digits})", ()
        return ("BIGINT" if spec.name in _INTEGERS else "STRING"), ()

    def _derived(self, bases: list[Any]) -> Iterator[Any]:
        for identity in self._identities:
            stated = identity.search("base")
            if any(base.i_identity in bases for base in stated):
                yield identity
                yield from self._derived([identity])


def _resolved(leaf: Any) -> Any:
    spec = leaf.search_one("type").i_type_spec
    while isinstance(spec, LeafrefTypeSpec):
        spec = spec.i_target_node.search_one("type").i_type_spec
    return spec


def _name(path: tuple[str, ...]) -> str:
    return "_".join(path).replace("-", "_").lower()


def _meaning(statement: Any) -> str:
    """The first sentence of a description; `none` is what UML tools write for nothing."""
    description = statement.search_one("description")
    words = " ".join(description.arg.split()) if description else ""
    sentence = _SENTENCE.split(words)[0]
    return "" if sentence in {"none", "None"} else sentence


def typed_classes(folder: Path) -> str:
    """What the file of the columns has to contain, by the modules of this folder."""
    modules = _Modules(folder)
    content = {"modules": modules.names, "classes": modules.classes()}
    return msgspec.json.format(msgspec.json.encode(content), indent=1).decode() + "\n"


def write(folder: Path) -> None:
    """Write the file of the columns; it is committed."""
    TYPED_COLUMNS.write_text(typed_classes(folder), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
