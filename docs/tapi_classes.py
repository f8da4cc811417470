"""Writes the table of TAPI's classes from the YANG of both editions:
`python -m docs.tapi_classes FOLDER_OF_2.1.3 FOLDER_OF_2.6`.

Its parts: what each class is called, where its entities stand, which resource shows them, and the
columns of the typed views of a lake. A column is a leaf, a leaf-list or a list of an entity, with
all that other modules augment it with. Containers are flattened into the name; a list stays JSON;
entities within an entity have records of their own (TR-548 3.10), so they are left out.

The YANG itself is not part of the project: what is made from it is committed, and a test compares
both where the YANG is there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec
from pyang.context import Context
from pyang.repository import FileRepository
from pyang.types import EnumTypeSpec, IdentityrefTypeSpec, LeafrefTypeSpec

from instep.ports.lake import TypedClass, TypedColumn
from instep_tapi.facts.classes import CLASSES_FILE, ClassModel, ClassPlace
from instep_tapi.facts.stream_profile import TAPI_2_1_3, TAPI_2_6

__all__ = ["class_table", "write"]

_INTEGERS: Final = {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"}
_BODY: Final = ("stream-record", "log-record", "log-record-body")
_CONTEXT: Final = "TAPI_CONTEXT"
_DETECTOR: Final = "CONDITION_DETECTOR"
_STREAMING: Final = "tapi-streaming"
_ANY_CLASS: Final = "ANY_CLASS"
_OBJECT_TYPE: Final = "OBJECT_TYPE_"
_SENTENCE: Final = re.compile(r"(?<=\.)\s")
_DECIMAL: Final = re.compile(r"DECIMAL\((\d+),(\d+)\)").fullmatch


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


def _identified_by(statement: Any) -> str:
    """The leaf that identifies what this states: uuid, local-id or none."""
    leaves = {child.arg for child in _children(statement) if child.keyword == "leaf"}
    return next((name for name in ("uuid", "local-id") if name in leaves), "")


def _is_entity(statement: Any) -> bool:
    key = statement.keyword == "list" and statement.search_one("key")
    return bool(key) and key.arg == "uuid"


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
        self.tree = _child(self.context.get_module("tapi-common"), "context")
        self._record = _child(self.context.get_module("tapi-streaming"), *_BODY)

    @cached_property
    def named(self) -> dict[str, str]:
        """The classes that record-content can name → the identity, empty in an enumeration."""
        kind = _child(self._record, "record-content").search_one("type").i_type_spec
        if isinstance(kind, EnumTypeSpec):
            return {name: "" for name, _ in kind.enums}
        bases = [base.i_identity for base in kind.idbases]
        return {
            identity.arg.rpartition(_OBJECT_TYPE)[2]: f"{identity.i_module.arg}:{identity.arg}"
            for identity in self._derived(bases)
            # The base of the identities of one module names no class.
            if not identity.arg.endswith("OBJECT_TYPE")
        }

    @cached_property
    def containers(self) -> dict[str, Any]:
        """The members of log-record-body that state an entity, by name."""
        return {
            child.arg: child
            for child in _children(self._record)
            if child.keyword == "container"
            and (_identified_by(child) or self._class_named(child.arg))
        }

    def _class_named(self, container: str) -> str | None:
        """The class that this member of log-record-body states, by the names of this edition."""
        name = container.upper().replace("-", "_")
        if name in self.named:
            return name
        short = [one for one in self.named if "".join(w[0] for w in one.split("_")) == name]
        ends = [one for one in self.named if one.endswith(f"_{name}")]
        return next(iter((*short, *ends)), None)

    @cached_property
    def classes(self) -> dict[Any, tuple[str, str]]:
        """Class and container by the grouping that both the record and the tree use."""
        found = {}
        for container, statement in self.containers.items():
            name = self._class_named(container) or container.upper().replace("-", "_")
            uses = statement.search_one("uses")
            if uses is not None and name != _ANY_CLASS:
                found[uses.i_grouping] = name, container
        return found

    def class_of(self, statement: Any) -> str | None:
        """The class of the entities that stand here in the tree."""
        used = (uses.i_grouping for uses in statement.search("uses"))
        found = (self.classes[one][0] for one in used if one in self.classes)
        return next(found, None) if _identified_by(statement) else None

    def walk(self, statement: Any, parent: str) -> Iterator[tuple[str, str, Any]]:
        """Parent class, class and statement of each entity below."""
        for child in _children(statement):
            if child.keyword not in {"container", "list"}:
                continue
            found = self.class_of(child)
            if found is not None:
                yield parent, found, child
            # Inside an entity of no class stand copies, as in a notification.
            if found is not None or not _is_entity(child):
                yield from self.walk(child, found or parent)

    def resources(self) -> dict[str, frozenset[str]]:
        """Resource below the context → classes whose entities it shows."""
        found = {}
        own = self.tree.i_module
        for child in _children(self.tree):
            shown = {name for _, name, _ in self.walk(child, _CONTEXT)}
            shown |= {name for name in [self.class_of(child)] if name}
            if shown:
                prefix = "" if child.i_module is own else f"{child.i_module.arg}:"
                found[f"{prefix}{child.arg}"] = frozenset(shown)
        return found

    def paths(self) -> dict[str, dict[str, str]]:
        """Class → class right above it → where the list of its entities stands below one of those,
        as RFC 8040 3.5.3 forms paths. Only lists with one key are in it.
        """
        found: dict[str, dict[str, str]] = {}
        for parent, name, statement in self.walk(self.tree, _CONTEXT):
            key = statement.keyword == "list" and statement.search_one("key")
            if not key or key.arg not in {"uuid", "local-id"}:
                continue
            if (path := self._path(statement)) is not None:
                found.setdefault(name, {}).setdefault(parent, path)
        return found

    def _path(self, statement: Any) -> str | None:
        """The way to a list from the entity or the context above it; None where it leads through
        another list.
        """
        names: list[str] = []
        while True:
            above = statement.parent
            while above.keyword in {"choice", "case"}:
                above = above.parent
            own = statement.i_module.arg
            names.insert(
                0, statement.arg if above.i_module.arg == own else f"{own}:{statement.arg}"
            )
            if above is self.tree or self.class_of(above) is not None:
                return "/".join(names)
            if above.keyword == "list":
                return None
            statement = above

    def typed(self) -> dict[str, TypedClass]:
        """Each class with its columns, by name."""
        detector = self.containers["condition-detector"]
        entities = [(name, one) for _, name, one in self.walk(self.tree, _CONTEXT)]
        found: dict[str, dict[str, TypedColumn]] = {}
        meanings: dict[str, str] = {}
        entities = [(name, one) for name, one in entities if _is_entity(one)]
        for name, entity in (*entities, (_DETECTOR, detector)):
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


def _model(editions: Sequence[tuple[str, _Modules]]) -> ClassModel:
    """Names, places, resources and paths of all editions together."""
    places: dict[str, ClassPlace] = {}
    spellings: dict[str, str] = {}
    by_container: dict[str, str] = {}
    for _, modules in editions:
        for name, container in modules.classes.values():
            # A later edition names some classes anew; one container is one class.
            known = by_container.setdefault(container, name)
            if name != known:
                spellings[name] = known
            statement = modules.containers[container]
            if known not in places:
                places[known] = ClassPlace(container, _identified_by(statement) == "local-id")
            module = statement.i_module.arg
            places[known].member = container if module == _STREAMING else f"{module}:{container}"
        for name, identity in modules.named.items():
            places.setdefault(spellings.get(name, name), ClassPlace()).identity = identity
    for _, modules in editions:
        for parent, name, statement in modules.walk(modules.tree, _CONTEXT):
            below = places[spellings.get(parent, parent)].contains
            found = spellings.get(name, name)
            if below.setdefault(statement.arg, found) != found:
                raise ValueError(f"{statement.arg} of {parent} holds two classes")
    resources = {
        edition: {
            resource: frozenset(spellings.get(name, name) for name in shown)
            for resource, shown in modules.resources().items()
        }
        for edition, modules in editions
    }
    paths = {
        edition: {
            spellings.get(name, name): {
                spellings.get(parent, parent): path for parent, path in above.items()
            }
            for name, above in modules.paths().items()
        }
        for edition, modules in editions
    }
    return ClassModel(places, spellings, resources, paths)


def _typed(
    editions: Sequence[tuple[str, _Modules]], spellings: dict[str, str]
) -> dict[str, TypedClass]:
    """The columns of all editions together: a later one widens what an earlier one has."""
    found: dict[str, TypedClass] = {}
    for _, modules in editions:
        for stated, typed in modules.typed().items():
            name = spellings.get(stated, stated)
            before = found.get(name, typed)
            columns = {column.name: column for column in before.columns}
            for column in typed.columns:
                known = columns.get(column.name, column)
                if known.path != column.path:
                    raise ValueError(f"two members of {name} give the column {column.name}")
                columns[column.name] = _both(known, column)
            found[name] = TypedClass(before.meaning or typed.meaning, tuple(columns.values()))
    return dict(sorted(found.items()))


def _both(one: TypedColumn, other: TypedColumn) -> TypedColumn:
    """A column that takes what either edition states."""
    closed = bool(one.values and other.values)
    return TypedColumn(
        one.name,
        one.path,
        one.type if one.type == other.type else _wider(one.type, other.type),
        unit=one.unit or other.unit,
        values=tuple(dict.fromkeys(one.values + other.values)) if closed else (),
        open=closed and (one.open or other.open),
        meaning=one.meaning or other.meaning,
    )


def _wider(one: str, other: str) -> str:
    """A type that takes what both take. A list beside a single text is text, as JSON."""
    numbers = [found for kind in (one, other) if (found := _DECIMAL(kind))]
    if len(numbers) < 2:
        return "STRING"
    fraction = max(int(number[2]) for number in numbers)
    whole = max(int(number[1]) - int(number[2]) for number in numbers)
    return f"DECIMAL({whole + fraction},{fraction})"


def class_table(*folders: Path) -> str:
    """What the file of the classes has to contain, by the modules of these folders: one for each
    edition, the earlier one first.
    """
    editions = list(zip((TAPI_2_1_3, TAPI_2_6), map(_Modules, folders), strict=True))
    model = _model(editions)
    content = {
        "modules": [name for _, modules in editions for name in modules.names],
        **msgspec.to_builtins(model, order="deterministic"),
        "classes": _typed(editions, model.spellings),
    }
    return msgspec.json.format(msgspec.json.encode(content), indent=1).decode() + "\n"


def write(*folders: Path) -> None:
    """Write the file of the classes; it is committed."""
    CLASSES_FILE.write_text(class_table(*folders), encoding="utf-8")


if __name__ == "__main__":
    write(*map(Path, sys.argv[1:]))
