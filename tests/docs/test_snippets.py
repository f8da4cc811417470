"""The snippets of the documentation work, and their runner detects those that do not."""

import re
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.snippets_kit import Page, Snippet, commands, pages, snippets
from tests.postgres_kit import Missing, Server, serving

REPOSITORY = Path(__file__).resolve().parents[2]


def runs(path: Path) -> bool:
    found = snippets(path.read_text(encoding="utf-8"))
    return any(
        snippet.mark == "file"
        or (snippet.mark in ("", "needs") and snippet.language in ("python", "console"))
        for snippet in found
    )


SQLITE = re.compile(r"sqlite:///\w+\.db")
ON_BOTH = [
    REPOSITORY / page
    for page in (
        "README.md",
        "docs/index.md",
        "docs/how-to/alarms.md",
        "docs/how-to/changes.md",
        "docs/how-to/choose-streams.md",
        "docs/how-to/data-frames.md",
        "docs/how-to/didcomm.md",
        "docs/how-to/handle-messages.md",
        "docs/how-to/held-sweep.md",
        "docs/how-to/jupyter.md",
        "docs/how-to/landing.md",
        "docs/how-to/log-in.md",
        "docs/how-to/measurements.md",
        "docs/how-to/nats.md",
        "docs/how-to/own-tables.md",
        "docs/how-to/pair.md",
        "docs/how-to/quarantine.md",
        "docs/how-to/reach.md",
        "docs/how-to/references.md",
        "docs/how-to/service.md",
        "docs/how-to/services.md",
        "docs/how-to/spark-source.md",
        "docs/how-to/truncated.md",
        "docs/how-to/webhook.md",
        "docs/how-to/workers.md",
        "docs/how-to/wsr.md",
        "docs/how-to/wsrm.md",
        "docs/tutorial/embed.md",
        "docs/tutorial/first-alignment.md",
        "docs/tutorial/loss.md",
    )
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "path",
    [path for path in pages(REPOSITORY) if runs(path)],
    ids=lambda path: str(path.relative_to(REPOSITORY)),
)
def test_every_snippet_works(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Page(str(path)) as page:
        for snippet in snippets(path.read_text(encoding="utf-8")):
            page.run(snippet)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    try:
        with serving() as started:
            yield started
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("path", ON_BOTH, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_every_snippet_works_on_postgresql(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    """The page as it is printed, but for the URLs of its stores, and how Python opens one."""
    monkeypatch.chdir(tmp_path)
    text = path.read_text(encoding="utf-8")
    for url in sorted(set(SQLITE.findall(text)), key=len, reverse=True):
        there = server.create()
        text = text.replace(url, there)
        file = url.removeprefix("sqlite:///")
        text = text.replace(f'sqlite3.connect("{file}")', f'psycopg.connect("{there}")')
    text = text.replace("import sqlite3\n", "import psycopg\n")
    text = text.replace('create_engine("postgresql:', 'create_engine("postgresql+psycopg:')
    with Page(str(path)) as page:
        for snippet in snippets(text):
            page.run(snippet)


def test_no_two_pages_listen_on_one_port() -> None:
    """They are run beside each other."""
    ports = [
        port
        for path in pages(REPOSITORY)
        for port in sorted(set(re.findall(r"--port (\d+)", path.read_text(encoding="utf-8"))))
    ]
    assert len(ports) > 10
    assert len(set(ports)) == len(ports)


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Page":
    monkeypatch.chdir(tmp_path)
    return Page("page.md")


def run(page: Page, markdown: str) -> None:
    with page:
        for snippet in snippets(textwrap.dedent(markdown)):
            page.run(snippet)


def test_finds_blocks_with_their_lines_and_marks() -> None:
    text = (
        "# Title\n\n```python\na = 1\n```\n\n"
        "<!-- not run: needs a controller -->\n```console\n$ x\n```\n\n"
        "<!-- file: a.toml -->\n\n```toml\nb = 1\n```\n\nWords.\n\n~~~\nc\n~~~\n"
    )
    assert snippets(text) == [
        Snippet("python", "a = 1\n", 4),
        Snippet("console", "$ x\n", 9, "not run", "needs a controller"),
        Snippet("toml", "b = 1\n", 15, "file", "a.toml"),
        Snippet("", "c\n", 21),
    ]


def test_a_mark_belongs_to_the_next_block_only() -> None:
    text = "<!-- not run: x -->\n\nWords.\n\n```python\n```\n"
    assert snippets(text) == [Snippet("python", "", 6)]


def test_commands_are_the_lines_after_the_prompt() -> None:
    console = "$ one \\\n> --two\nits output\n$ three\n$ not-$output\n"
    assert commands(console).split("\n") == ["one \\", "--two", "", "three", "not-$output"]


def test_python_shares_names_and_may_await(page: Page) -> None:
    run(
        page,
        """
        ```python
        import asyncio
        from dataclasses import dataclass

        @dataclass
        class A:
            b: int
        ```
        ```python
        await asyncio.sleep(0)
        a = A(await asyncio.sleep(0, 3))
        ```
        ```python
        from pathlib import Path
        Path("said").write_text(str(a.b))
        ```
        """,
    )
    assert Path("said").read_text() == "3"


def test_python_that_fails_names_its_line(page: Page) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        run(page, "Words.\n\n```python\nx = 1\nx / 0\n```\n")
    last = caught.traceback[-1]
    assert (str(last.path), last.lineno + 1) == ("page.md", 5)


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_console_runs_in_order_and_ends_what_it_started(page: Page) -> None:
    run(page, "```console\n$ sleep 600 &\n$ echo $! > pid\nsaid 1\n$ test -s pid\n```\n")
    pid = int(Path("pid").read_text())
    deadline = time.monotonic() + 10
    while running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_console_that_fails_shows_its_output(page: Page) -> None:
    with pytest.raises(AssertionError, match=r"(?s)page.md:2: ended with 3.*first.*exit 3"):
        run(page, "```console\n$ echo first\n$ (exit 3)\n$ echo never\n```\n")


def test_a_block_marked_as_file_is_written(page: Page) -> None:
    run(page, "<!-- file: a/b.json -->\n```json\n{}\n```\n```console\n$ test -f a/b.json\n```\n")


def test_a_marked_block_is_not_run_and_needs_a_reason(page: Page) -> None:
    run(page, "<!-- not run: it never ends -->\n```python\n1 / 0\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md:3: say why"):
        run(page, "<!-- not run: -->\n```python\n1 / 0\n```\n")


def test_a_page_ends_where_what_it_needs_is_not_installed(page: Page) -> None:
    run(page, "<!-- needs: json -->\n```python\na = 1\n```\n")
    with pytest.raises(pytest.skip.Exception, match="no_such_module is not installed"):
        run(page, "<!-- needs: no_such_module -->\n```python\n1 / 0\n```\n")
