"""What of a configuration may be shown: the values that a plug-in's options state as no secret.

A value is shown only if the struct of the options has its key, and does not have it as `Secret` or
as a free table. Of a URL, user and password, query and parameters are left out. Everything else
reads `***`, unless it is a variable alone: `${NAME}` shows no value.
"""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec

from instep.config.secret import Secret

__all__ = ["masked", "shown_table", "shown_text"]

_VARIABLE: Final = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_SCHEME: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")
_PARAMETERS: Final = re.compile(r"[?#;].*", re.DOTALL)


def shown_table(struct: type[msgspec.Struct], table: Mapping[str, Any]) -> dict[str, Any]:
    """A table as it is written in a file, with every value that may be secret as a `Secret`.

    `struct` is what the table is read into; a key that it does not have is masked.
    """
    hints = get_type_hints(struct)
    fields = zip(struct.__struct_encode_fields__, struct.__struct_fields__, strict=True)
    types_of = {key: hints[field] for key, field in fields}
    tag = struct.__struct_config__.tag_field
    return {
        key: _shown(str if key == tag else types_of.get(key, Secret), value)
        for key, value in table.items()
    }


def masked(value: Any) -> Any:
    """A value of which nothing may be shown but the keys of tables."""
    if isinstance(value, Mapping):
        return {key: masked(inner) for key, inner in value.items()}
    if isinstance(value, str) and _VARIABLE.fullmatch(value):
        return value
    return Secret(str(value))


def shown_text(text: str) -> str:
    """A text without what may be secret in a URL, or in a path below one."""
    scheme = _SCHEME.match(text)
    if scheme is None:
        return _without_parameters(text) if text.startswith("/") else text
    rest = text[scheme.end() :]
    login, at, place = rest.rpartition("@")
    if at and re.search("[:/?#;]", login):
        login = "***"
    return scheme[0] + login + at + _without_parameters(place)


def _without_parameters(text: str) -> str:
    return _PARAMETERS.sub(lambda found: f"{found[0][0]}***", text)


def _shown(type_: Any, value: Any) -> Any:
    members = _members(type_)
    if Secret in members:
        return masked(value)
    if isinstance(value, Mapping):
        struct = _struct_of(members, value)
        return masked(value) if struct is None else shown_table(struct, value)
    if isinstance(value, list):
        inner = next((get_args(one)[0] for one in members if get_args(one)), Secret)
        return [_shown(inner, one) for one in value]
    return shown_text(value) if isinstance(value, str) else value


def _members(type_: Any) -> tuple[Any, ...]:
    return get_args(type_) if get_origin(type_) in {Union, types.UnionType} else (type_,)


def _struct_of(members: tuple[Any, ...], table: Mapping[str, Any]) -> type[msgspec.Struct] | None:
    """The struct that a table is read into: of several, the one with the tag that it states."""
    for one in members:
        if isinstance(one, type) and issubclass(one, msgspec.Struct):
            config = one.__struct_config__
            if config.tag_field is None or table.get(config.tag_field) == config.tag:
                return one
    return None
