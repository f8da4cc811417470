"""What the examples share: their options, and a simulated provider where none is named.

A program of yours needs nothing of this: it knows its provider and its store.
"""

import argparse
import asyncio
import atexit
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from instep_tapi_provider import Provider, topology_context

_FOLDER = TemporaryDirectory(prefix="instep-")
atexit.register(_FOLDER.cleanup)


def temporary(name: str) -> str:
    """The path of a file that is removed when the program ends."""
    return str(Path(_FOLDER.name) / name)


def described(text: str | None) -> argparse.ArgumentParser:
    """Options whose help begins with what the example says of itself."""
    return argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def options(text: str | None) -> argparse.ArgumentParser:
    """The options of an example that follows a provider."""
    parser = described(text)
    parser.add_argument(
        "endpoint", nargs="?", metavar="URL", help="a provider; left out, one is simulated"
    )
    return parser


def store_options(text: str | None) -> argparse.ArgumentParser:
    """The options of an example that follows a provider into a store of SQL."""
    parser = options(text)
    parser.add_argument(
        "--store",
        dest="url",
        metavar="URL",
        default=f"sqlite:///{temporary('store.db')}",
        help="a store; left out, a temporary file",
    )
    return parser


@asynccontextmanager
async def provider(endpoint: str | None) -> AsyncIterator[str]:
    """The provider to read: the named one, or one that is simulated while the block runs."""
    if endpoint is not None:
        yield endpoint
        return
    simulated = Provider(topology_context("sndlib/abilene", services=20))
    simulated.raise_alarms(12)
    async with simulated:
        await simulated.start_storm(20)
        print(f"a simulated backbone at {simulated.url} changes 20 times a second", flush=True)
        yield simulated.url


def run(main: Callable[..., Awaitable[None]], parser: argparse.ArgumentParser) -> None:
    """Call `main` with the options of the command line, each by its name."""
    given = vars(parser.parse_args())

    async def against_provider() -> None:
        async with provider(given.pop("endpoint")) as endpoint:
            await main(endpoint, **given)

    with suppress(KeyboardInterrupt):
        asyncio.run(against_provider())
