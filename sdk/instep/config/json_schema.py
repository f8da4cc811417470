"""A JSON Schema of `instep.toml`, for editors: the keys of the core and of installed plug-ins."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from instep.config.attribute_docs import attribute_docs
from instep.config.file import FileTable, PublisherTable
from instep.config.reference import (
    PLUGINS,
    ConsumerTable,
    Table,
    installed,
    is_plugin_table,
    meaning,
    tables,
)

__all__ = ["json_schema"]

_VARIABLE: Final = {"type": "string", "pattern": r"\$\{[A-Za-z_]"}
"""A text with a variable: what it becomes is known when the file is read."""


def json_schema() -> dict[str, Any]:
    """The schema (draft 2020-12). It refuses unknown keys, wrong types and values out of bounds;
    what several keys say together is checked by `instep check` alone.
    """
    every = list(tables())
    structs = list(dict.fromkeys(table.struct for table in every))
    _, definitions = msgspec.json.schema_components(
        structs, schema_hook=lambda _: {"type": "string"}, ref_template="#/$defs/{name}"
    )
    refs, _ = msgspec.json.schema_components(
        structs, schema_hook=lambda _: {"type": "string"}, ref_template="{name}"
    )
    names = {struct: one["$ref"] for struct, one in zip(structs, refs, strict=True)}
    for table in every:
        _describe(definitions[names[table.struct]], table)
    for definition in definitions.values():
        if "enum" in definition:
            _allow_variable(definition)
    parents: dict[str, type[msgspec.Struct]] = {
        "consumers": ConsumerTable,
        "publishers": PublisherTable,
    }
    for part, (of, _, _) in PLUGINS.items():
        parent = definitions[names[parents[of]]]
        kinds = []
        for kind, struct in installed(part).items():
            definitions[f"{part} {kind}"] = _of_kind(
                kind, definitions[names[struct]] if struct is not None else None
            )
            kinds.append({"$ref": f"#/$defs/{part} {kind}"})
        said = parent["properties"][part].get("description", "")
        parent["properties"][part] = {"oneOf": kinds, "description": said}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "instep.toml",
        "description": "Consumers of instep: each keeps a store in step with a provider.",
        "type": "object",
        "properties": {
            **definitions.pop(names[FileTable])["properties"],
            **{
                of: {
                    "type": "array",
                    "minItems": 1,
                    "items": {"$ref": f"#/$defs/{names[parent]}"},
                }
                for of, parent in parents.items()
            },
        },
        "anyOf": [{"required": [of]} for of in parents],
        "additionalProperties": False,
        "$defs": definitions,
    }


def _describe(definition: dict[str, Any], table: Table) -> None:
    """Add what `check` refuses besides types, and the meaning of each key."""
    definition["additionalProperties"] = is_plugin_table(table.struct)
    properties = definition["properties"]
    if is_plugin_table(table.struct):
        properties.pop("options", None)
    if table.struct.__struct_config__.tag is not None:
        properties["kind"]["description"] = table.meaning
    meanings = attribute_docs(table.struct)
    for field in msgspec.structs.fields(table.struct):
        if field.encode_name in properties:
            properties[field.encode_name] = {
                **_with_variable(properties[field.encode_name]),
                "description": meaning(field, meanings),
            }


def _with_variable(told: dict[str, Any]) -> dict[str, Any]:
    """The same, where a text of given values or of a pattern may also be a variable."""
    told = dict(told)
    if told.pop("orOne", False):
        # A plug-in that reads a single text as a list of one.
        told["type"] = ["array", "string"]
    if "anyOf" in told:
        told["anyOf"] = [_with_variable(one) for one in told["anyOf"]]
    elif "items" in told:
        told["items"] = _with_variable(told["items"])
    elif told.get("type") == "string" and "pattern" in told:
        default = {"default": told.pop("default")} if "default" in told else {}
        return {"anyOf": [told, _VARIABLE], **default}
    elif "enum" in told:
        _allow_variable(told)
    return told


def _allow_variable(told: dict[str, Any]) -> None:
    values = {"enum": told.pop("enum")}
    told["anyOf"] = [values, _VARIABLE]


def _of_kind(kind: str, definition: dict[str, Any] | None) -> dict[str, Any]:
    """The table of one kind of plug-in; any keys where the plug-in does not state them."""
    if definition is None:
        definition = {"type": "object", "properties": {}}
    kind_key = {"const": kind, "description": "The plug-in."}
    return {
        **definition,
        "properties": {"kind": kind_key, **definition["properties"]},
        "required": ["kind", *definition.get("required", [])],
    }
