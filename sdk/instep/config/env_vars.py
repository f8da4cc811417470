"""Fills in `${VAR}`, `${VAR:-default}` and `$$` in a table of plain data, and hides the values
again in errors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from instep.errors import ConfigurationError

__all__ = ["expand", "redact"]

_VARIABLE: Final = re.compile(r"\$\$|\$\{([^}]*)(\}?)")
_BARE: Final = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*")
_NAME: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


def expand(value: Any, where: str, environ: Mapping[str, str]) -> tuple[Any, dict[str, str]]:
    """The value with the variables in its texts filled in, and a map from each value to its
    variable.

    As in a shell, a default also stands in for a variable that is empty. Raises
    `ConfigurationError` naming the variable and the key's path for one that is not set.
    """
    values: dict[str, str] = {}

    def walk(value: Any, where: str) -> Any:
        if isinstance(value, str):
            if _BARE.fullmatch(value):
                raise ConfigurationError(
                    "the text begins with $, but names no variable",
                    where=where,
                    hint="a variable is written ${NAME}; a dollar sign itself is $$",
                )
            return _VARIABLE.sub(lambda match: _filled(match, where, environ, values), value)
        if isinstance(value, dict):
            return {key: walk(inner, f"{where}.{key}") for key, inner in value.items()}
        if isinstance(value, list):
            return [walk(inner, f"{where}[{index}]") for index, inner in enumerate(value)]
        return value

    return walk(value, where), values


def redact(text: str, values: Mapping[str, str]) -> str:
    """The text with each value that came from a variable shown as the variable."""
    for value in sorted(values, key=len, reverse=True):
        # Whole words only: a value such as "1" must not be replaced inside an unrelated text.
        parts = re.split(rf"(?<!\w){re.escape(value)}(?!\w)", text)
        text = values[value].join(parts)
    return text


def _filled(
    match: re.Match[str], where: str, environ: Mapping[str, str], values: dict[str, str]
) -> str:
    if match[0] == "$$":
        return "$"
    named = _NAME.fullmatch(match[1])
    if named is None or not match[2]:
        raise ConfigurationError(
            "'${' does not begin a variable",
            where=where,
            hint="write ${NAME} or ${NAME:-default}; a dollar sign itself is $$",
        )
    name, default = named[1], named[2]
    found = environ.get(name)
    if found:
        values[found] = f"${{{name}}}"
    elif default is not None:
        return str(default)
    elif found is None:
        raise ConfigurationError(
            f"the environment variable {name} is not set",
            where=where,
            hint=f"set it, or give a default: ${{{name}:-…}}",
            variable=name,
        )
    return found
