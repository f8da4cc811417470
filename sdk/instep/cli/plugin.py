"""`instep plugin new`: a source of your own to begin with, which keeps the promises of a source."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from importlib.metadata import entry_points
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Final

import typer

from instep.errors import ConfigurationError

__all__ = ["new"]

_TEMPLATE: Final = "my_plugin"
_SKIPPED: Final = frozenset({"__init__.py", "__pycache__"})
"""What stands in the folder of the template, and is not of it."""
_NAME: Final = re.compile("[A-Za-z](?:[A-Za-z0-9_]{,62}[A-Za-z0-9])?")
"""A module whose name, with dashes, is also the name of a distribution."""


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name: my_controller.")],
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="DIR", help="Where; default: NAME.", show_default=False),
    ] = None,
) -> None:
    """Write a package with a source over TCP: ends, gaps, a baseline, and its tests.

    It runs as it is. Replace the protocol by yours, and keep the tests.

    Example: instep plugin new my_controller
    """
    module = name.replace("-", "_")
    if not _NAME.fullmatch(module) or keyword.iskeyword(module):
        raise ConfigurationError(
            f"{name!r} cannot be the name of a package",
            where="NAME",
            hint="use at most 64 letters, digits and _, for example my_controller",
        )
    target = folder or Path(module)
    if target.exists() and any(target.iterdir()):
        raise ConfigurationError(
            "the folder is there already", where=str(target), hint="choose another --folder"
        )
    if taken := _taken(module):
        raise ConfigurationError(f"{module!r} is {taken}", where="NAME", hint="choose another name")
    for path, text in _filled(module):
        file = target / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    typer.echo(f'{target}: kind = "{module}". Next:')
    typer.echo(f'  cd {target} && pip install -e ".[test]" && pytest')


def _taken(module: str) -> str:
    """What has this name already, so that one of the two could not be used; empty if nothing."""
    if module in entry_points(group="instep.sources").names:
        return "a kind of source that is installed"
    if module in sys.stdlib_module_names:
        return "a module of Python"
    if module == "tests":
        return "the folder of its tests"
    return "a module that is installed" if PathFinder.find_spec(module) else ""


def _filled(module: str) -> Iterator[tuple[Path, str]]:
    """The files of the template, under this name."""

    def renamed(text: str) -> str:
        dashed = _TEMPLATE.replace("_", "-"), module.replace("_", "-")
        return text.replace(_TEMPLATE, module).replace(*dashed)

    for path, file in _files(files("instep.cli.plugin_template"), Path()):
        yield Path(renamed(str(path)).removesuffix(".in")), renamed(file.read_text("utf-8"))


def _files(folder: Traversable, at: Path) -> Iterator[tuple[Path, Traversable]]:
    for one in folder.iterdir():
        if one.name in _SKIPPED and (at == Path() or one.name == "__pycache__"):
            continue
        if one.is_dir():
            yield from _files(one, at / one.name)
        else:
            yield at / one.name, one
