"""Finds the snippets of a Markdown page and runs them, in order, as a reader would.

- ``python``: executed; the names of one page are shared and `await` may stand at the top.
- ``console``: the lines after ``$ `` are one shell script that must end with 0; the rest is output.
  What it leaves running in the background is ended with the page.
- Any snippet after ``<!-- file: NAME -->`` is written to NAME instead; a ``.toml`` file must then
  pass ``instep check`` (each variable it names is set for that).
- A snippet after ``<!-- not run: REASON -->`` is left out. Other languages are not run.
- ``<!-- needs: MODULE -->``: where the module is not installed, the rest of the page is skipped.
"""

import ast
import asyncio
import importlib.util
import os
import re
import signal
import subprocess
import sysconfig
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from inspect import CO_COROUTINE
from pathlib import Path
from types import CodeType, FunctionType, TracebackType
from typing import Self

import pytest
from markdown_it import MarkdownIt
from typer.testing import CliRunner

from instep.cli.app import app

LIMIT_S = 120
MARK = re.compile(r"<!--\s*(file|needs|not run):\s*(.*?)\s*-->", re.DOTALL)
VARIABLE = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Snippet:
    """A fenced block: its text, the line of the page where the text starts, and its mark."""

    language: str
    text: str
    line: int
    mark: str = ""
    value: str = ""


@cache  # each page is read by several tests, while they are collected
def snippets(markdown: str) -> list[Snippet]:
    """The fenced blocks of a page in order; a mark belongs to the block that follows it."""
    found: list[Snippet] = []
    mark = value = ""
    for token in MarkdownIt().parse(markdown):
        if token.type == "fence" and token.map:
            language = token.info.split(maxsplit=1)[0] if token.info.strip() else ""
            found.append(Snippet(language, token.content, token.map[0] + 2, mark, value))
        marked = MARK.fullmatch(token.content.strip()) if token.type == "html_block" else None
        mark, value = marked.groups() if marked else ("", "")
    return found


def commands(console: str) -> str:
    """The script of a console block: the lines after ``$ `` and what a backslash continues."""
    script: list[str] = []
    for line in console.splitlines():
        if line.startswith("$ "):
            script.append(line[2:])
        elif script and script[-1].endswith("\\"):
            script.append(line.removeprefix("> "))
        else:  # output ends a command
            script.append("")
    return "\n".join(script)


class Page:
    """Runs the snippets of one page in the current folder; what they share ends with the `with`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._names: dict[str, object] = {"__name__": "__main__"}
        self._runner = asyncio.Runner()
        self._groups: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._runner.close()
        for group in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

    def run(self, snippet: Snippet) -> None:
        """Run one snippet; raises what it raises, or AssertionError with its output."""
        if snippet.mark == "not run":
            assert snippet.value, f"{self._name}:{snippet.line}: say why the snippet is not run"
        elif snippet.mark == "needs" and importlib.util.find_spec(snippet.value) is None:
            pytest.skip(f"{snippet.value} is not installed")
        elif snippet.mark == "file":
            self._write(snippet)
        elif snippet.language == "python":
            self._python(snippet)
        elif snippet.language == "console":
            self._shell(commands(snippet.text), snippet)

    def _write(self, snippet: Snippet) -> None:
        path = Path(snippet.value)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(snippet.text, encoding="utf-8")
        if path.suffix == ".toml":
            variables = dict.fromkeys(VARIABLE.findall(snippet.text), "example")
            done = CliRunner().invoke(app, ["check", snippet.value], env=variables)
            assert done.exit_code == 0, f"{self._name}:{snippet.line}: {done.output[-4000:]}"

    def _python(self, snippet: Snippet) -> None:
        code: CodeType = compile(
            "\n" * (snippet.line - 1) + snippet.text,
            self._name,
            "exec",
            flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
        )
        if code.co_flags & CO_COROUTINE:
            self._runner.run(FunctionType(code, self._names)())
        else:
            exec(code, self._names)

    def _shell(self, script: str, snippet: Snippet) -> None:
        environment = dict(os.environ)
        environment["PATH"] = sysconfig.get_path("scripts") + os.pathsep + environment["PATH"]
        output = Path(f".output-{snippet.line}")
        with output.open("wb") as file:  # a pipe would stay open as long as a background process
            process = subprocess.Popen(
                ["bash", "-e", "-x", "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=environment,
                start_new_session=True,
            )
        self._groups.append(process.pid)
        try:
            code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            code = None
        if code != 0:
            printed = output.read_text(encoding="utf-8", errors="replace")[-4000:]
            ending = f"not ended after {LIMIT_S} s" if code is None else f"ended with {code}"
            msg = f"{self._name}:{snippet.line}: {ending}\n{printed}"
            raise AssertionError(msg)


def pages(repository: Path) -> list[Path]:
    """README.md and the pages of the documentation."""
    built = repository / "docs" / "_build"
    return [
        repository / "README.md",
        *sorted(page for page in repository.glob("docs/**/*.md") if built not in page.parents),
    ]
