"""The command line: `instep`. One file a command; plug-ins add theirs (`instep.commands`)."""

__all__ = ["main"]


def main() -> None:
    """The entry point of the script `instep`; ends the process with 0, 1 or 2."""
    from instep.cli.app import app

    app(prog_name="instep")
