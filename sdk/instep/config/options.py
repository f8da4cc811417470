"""Reads the options of a sink that has a URL, out of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from instep.errors import ConfigurationError

__all__ = ["read_sink_options"]

T = TypeVar("T", bound=msgspec.Struct)


def read_sink_options(options: Mapping[str, Any], type_: type[T], where: str, *, example: str) -> T:
    """Options from plain data. Raises `ConfigurationError` naming the key, where it stands and
    what fits; `example` is a URL that does.
    """
    known = type_.__struct_fields__
    given = {key: value for key, value in options.items() if key != "kind"}
    for key in given:
        if key not in known:
            raise ConfigurationError(
                f"unknown key {key!r}",
                where=where,
                hint=f"known keys: {', '.join(known)}",
                key=key,
                known=list(known),
            )
    if "url" not in given:
        raise ConfigurationError(
            "the key 'url' is missing", where=where, hint=f'for example url = "{example}"'
        )
    try:
        return msgspec.convert(given, type_)
    except msgspec.ValidationError as error:
        text, _, at = str(error).partition(" - at `$.")
        key = at.rstrip("`")
        raise ConfigurationError(
            f"the key {key!r} is not usable: {text}", where=where, key=key
        ) from None
