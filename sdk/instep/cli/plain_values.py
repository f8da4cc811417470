"""A short cut: values of options and arguments that need no conversion.

typer converts each value by pydantic, also the None of an option that is not given, and to import
pydantic takes a quarter of the time of `instep status`. The plain twin is typer's own
`process_value`, which gets whatever is not of its type already.
"""

from __future__ import annotations

import os
from enum import EnumType
from functools import partial
from pathlib import Path
from typing import Any

from typer.core import TyperCommand, TyperGroup

__all__ = ["PlainCommand", "PlainGroup"]


class PlainCommand(TyperCommand):
    """Takes as it is what is not given, and what has its type."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click."""
        _pass_plain_values(self.get_params(ctx))
        return super().parse_args(ctx, args)


class PlainGroup(TyperGroup):
    """The same for the options of a group."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See click."""
        _pass_plain_values(self.get_params(ctx))
        return super().parse_args(ctx, args)


def _pass_plain_values(parameters: list[Any]) -> None:
    for parameter in parameters:
        # Versions of typer without this attribute do not import pydantic.
        if hasattr(parameter, "type_descriptor") and "process_value" not in vars(parameter):
            parameter.process_value = partial(_value, parameter, parameter.process_value)


def _value(parameter: Any, convert: Any, ctx: Any, value: Any) -> Any:
    kind = parameter.type_descriptor.annotation
    chosen = type(value) is str and isinstance(kind, EnumType)
    if chosen and value in [one.value for one in kind]:
        value = kind(value)
    elif type(value) is str and kind is Path and _is_read_as_it_is(parameter, value):
        value = Path(value)
    single = parameter.nargs == 1 and not getattr(parameter, "multiple", False)
    if value is None:
        plain = single and not parameter.required
    else:
        # A number may have bounds.
        of_kind = type(value) is kind or (kind is Path and isinstance(value, Path))
        plain = single and of_kind and kind not in {int, float}
    if not plain:
        return convert(ctx, value)
    return value if parameter.callback is None else parameter.callback(ctx, parameter, value)


def _is_read_as_it_is(parameter: Any, value: str) -> bool:
    """Whether this is a path that can be read, of an option that asks for no more."""
    asked = parameter.type_descriptor.parameter_info
    more = asked.exists or asked.resolve_path or asked.writable or asked.allow_dash
    return not more and asked.file_okay and asked.dir_okay and os.access(value, os.R_OK)
