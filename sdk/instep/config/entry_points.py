"""The commands that plug-ins add (`instep.commands`): listed without importing any of them.

An entry point names a function, or a mapping of names to functions: a group of commands.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from collections.abc import Callable, Mapping
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, requires
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from instep.errors import ConfigurationError

if TYPE_CHECKING:
    from instep.conformance import RuleBook

__all__ = [
    "Command",
    "broken",
    "command_points",
    "conformance_points",
    "install_hint",
    "load_command",
    "rule_book",
    "summary",
]

Command = Callable[..., Any] | Mapping[str, Callable[..., Any]]
"""A command, or the commands of a group by their names."""

_OTHER_MODULES: Final = {"delta": "delta-spark", "nats": "nats-py"}
"""Module → the distribution that installs it, where their names differ by more than a sign."""
_OPTIONAL: Final = re.compile(r"""([\w.-]+).*extra\s*==\s*["']([\w.-]+)["']""")
"""The distribution and the extra of a requirement that an extra adds."""
_COMMANDS: Final = "instep.commands"
_CONFORMANCE: Final = "instep.conformance"
_RULES: Final = "instep.rules"


def command_points() -> list[EntryPoint]:
    """The entry points of commands, by name."""
    return sorted(entry_points(group=_COMMANDS), key=lambda point: point.name)


def conformance_points() -> list[EntryPoint]:
    """The entry points of the commands below `instep conformance`, by name."""
    return sorted(entry_points(group=_CONFORMANCE), key=lambda point: point.name)


def rule_book(protocol: str, where: str = "--protocol") -> RuleBook:
    """The rules of a protocol. Raises `ConfigurationError` for one that no adapter has."""
    points = {point.name: point for point in entry_points(group=_RULES)}
    if protocol not in points:
        raise ConfigurationError(
            f"there are no rules of {protocol!r}",
            where=where,
            hint=f"there are those of {', '.join(sorted(points))}",
        )
    try:
        make: Callable[[], RuleBook] = points[protocol].load()
    except Exception as error:  # a plug-in may fail in any way; the reason is shown
        raise broken(points[protocol], "rule book", "", error) from error
    return make()


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
            case ast.FunctionDef(point.attr) | ast.AsyncFunctionDef(point.attr), _:
                return _first(ast.get_docstring(node) or "")
            case ast.AnnAssign(target=ast.Name(point.attr)), ast.Expr(ast.Constant(str(text))):
                return _first(text)
    return ""


def _first(text: str) -> str:
    return inspect.cleandoc(text).partition("\n\n")[0]


def broken(point: EntryPoint, what: str, where: str, error: Exception) -> ConfigurationError:
    """The error for an entry point that cannot be loaded, or lacks something when it is used."""
    distribution = point.dist.name if point.dist else ""
    hint = install_hint(error, distribution)
    return ConfigurationError(
        f"the {what} {point.name!r} cannot be loaded: {type(error).__name__}: {error}",
        where=where or point.value,
        hint=hint or f"mend or remove the distribution {distribution or point.value}",
    )


def install_hint(error: BaseException, distribution: str = "instep") -> str:
    """What to do about a module that is missing; empty where none is, or no extra of this
    distribution brings it. The extras are those that its metadata states.
    """
    missing = getattr(error, "name", None) if isinstance(error, ImportError) else None
    if not missing or not distribution:
        return ""
    module = missing.partition(".")[0]
    wanted = _normal(_OTHER_MODULES.get(module, module))
    try:
        stated = requires(distribution) or ()
    except PackageNotFoundError:
        return ""
    optional = [(_normal(name), extra) for name, extra in map(_optional, stated) if extra]
    # The smallest that has it: another one may be the sum of all.
    sizes = Counter(extra for _, extra in optional)
    extras = {extra for name, extra in optional if name == wanted}
    if not extras:
        return ""
    extra = min(extras, key=lambda one: (sizes[one], one))
    return f'install what it needs: pip install "{distribution}[{extra}]"'


def _optional(requirement: str) -> tuple[str, str]:
    """The name of a requirement and the extra that adds it; empty where none does."""
    found = _OPTIONAL.match(requirement)
    return ("", "") if found is None else (found[1], found[2])


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


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
