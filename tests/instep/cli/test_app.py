"""What is the same for every command: endings, messages, plug-in commands."""

from pathlib import Path

import pytest
import typer

from instep.cli.exit_codes import with_exit_code
from tests.instep.cli.cli_kit import instep, started
from tests.instep.third_party_kit import install


def test_every_command_is_there() -> None:
    output = instep("--help").stdout
    for command in ("check", "run", "status", "entities", "changes", "quarantine"):
        assert f" {command} " in output


def test_the_version_is_shown() -> None:
    assert instep("--version").stdout.startswith("instep ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["entities", "--store"],
        ["entities", "--store", "sqlite://", "--format", "xml"],
        ["changes", "--store", "sqlite://", "--after", "-1"],
        ["quarantine", "show", "x", "--store", "sqlite://"],
        ["runn"],
        ["run", "--period", "0"],
    ],
)
def test_wrong_usage_ends_with_2(arguments: list[str]) -> None:
    result = instep(*arguments)
    assert result.exit_code == 2
    assert not result.stdout
    assert "Error" in result.stderr


def test_a_traceback_is_shown_only_when_asked_for(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.toml")
    assert "Traceback" not in instep("check", missing).stderr
    asked = instep("--debug", "check", missing)
    assert asked.exit_code == 2
    assert "Traceback" in asked.stderr
    assert "error: there is no such file" in asked.stderr


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ZeroDivisionError("by zero"), "error: ZeroDivisionError: by zero\n  to do: this is a"),
        (PermissionError(13, "Permission denied", "/f"), "Permission denied\n  where: /f\n"),
    ],
)
def test_any_other_error_ends_with_1_in_a_few_lines(
    error: Exception, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def command() -> None:
        raise error

    with pytest.raises(typer.Exit) as caught:
        with_exit_code(command)()
    assert caught.value.exit_code == 1
    assert message in capsys.readouterr().err


def test_commands_of_others_are_found_and_a_broken_one_breaks_nothing(tmp_path: Path) -> None:
    module = '''
from instep.errors import ConfigurationError, SinkError
def greet(name: str) -> None:
    """Greet somebody."""
    print(f"hello {name}")
async def refuse() -> None:
    """Refuse it as a coroutine."""
    raise SinkError("no", where="here", hint="do that")
'''
    points = "[instep.commands]\ngreet = o:greet\nrefuse = o:refuse\nodd = o:nothing\n"
    install(tmp_path, {"o": module}, points)

    def run_module(*arguments: str) -> tuple[int, str, str]:
        with started(*arguments, PYTHONPATH=str(tmp_path)) as process:
            shown, errors = process.communicate(timeout=60)
        return process.returncode, shown.decode(), errors.decode()

    assert "Refuse it as a coroutine." in run_module("--help")[1]
    assert run_module("greet", "you") == (0, "hello you\n", "")
    assert run_module("refuse") == (1, "", "error: no\n  where: here\n  to do: do that\n")
    code, _, errors = run_module("odd", "--any", "thing")
    assert code == 2
    assert "error: the command 'odd' cannot be loaded: AttributeError" in errors
    assert "distribution thirdparty" in errors
