"""The commands that plug-ins add (`instep.commands`): listed without importing any of them.

An entry point names a function, or a mapping of names to functions: a group of commands.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final

from instep.errors import ConfigurationError

__all__ = ["EXTRAS", "Command", "broken", "command_points", "load_command", "summary"]

Command = Callable[..., Any] | Mapping[str, Callable[..., Any]]
"""A command, or the commands of a group by their names."""

EXTRAS: Final = {
    "tapi": "tapi",
    "wsrm": "soap",
    "wsr": "soap",
    "sdpi": "soap",
    "didcomm": "didcomm",
    "delta": "spark",
}
"""Kind → the extra of the distribution that installs it."""
_COMMANDS: Final = "instep.commands"


def command_points() -> list[EntryPoint]:
    """The entry points of commands, by name."""
    return sorted(entry_points(group=_COMMANDS), key=lambda point: point.name)


def load_command(point: EntryPoint) -> Command:
    """What an entry point names. Raises `ConfigurationError` if it cannot be imported."""
    try:
        command: Command = point.load()
    except Exception as error:  # a plug-in may fail in any way; the reason is shown
        raise broken(point, "command", "", error) from error
    return command


def summary(point: EntryPoint) -> str:
    """The first paragraph of a command's docstring, or of the text below a group; empty where it
    has none. Read from its source.

    Nothing is imported: a plug-in may take a second to import, and listing it is no reason to.
    """
    try:
        path = _source(point.module)
        tree = ast.parse(path.read_bytes()) if path else ast.Module([], [])
    except (OSError, SyntaxError, ValueError):
        return ""
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        match node, after:
            case ast.FunctionDef(name=point.attr), _:
                return _first(ast.get_docstring(node) or "")
            case ast.AnnAssign(target=ast.Name(point.attr)), ast.Expr(ast.Constant(str(text))):
                return _first(text)
    return ""


def _first(text: str) -> str:
    return inspect.cleandoc(text).partition("\n\n")[0]


def broken(point: EntryPoint, what: str, where: str, error: Exception) -> ConfigurationError:
    """The error for an entry point that cannot be loaded."""
    extra = EXTRAS.get(point.name)
    if isinstance(error, ImportError) and extra:
        hint = f'install what it needs: pip install "instep[{extra}]"'
    else:
        hint = f"mend or remove the distribution {point.dist.name if point.dist else point.value}"
    return ConfigurationError(
        f"the {what} {point.name!r} cannot be loaded: {type(error).__name__}: {error}",
        where=where or point.value,
        hint=hint,
    )


def _source(module: str) -> Path | None:
    """The file of a module, found through the folders of its packages."""
    folders: list[str] | None = None
    *packages, last = module.split(".")
    for package in packages:
        spec = PathFinder.find_spec(package, folders)
        if spec is None or spec.submodule_search_locations is None:
            return None
        folders = list(spec.submodule_search_locations)
    spec = PathFinder.find_spec(last, folders)
    return Path(spec.origin) if spec is not None and spec.origin is not None else None
