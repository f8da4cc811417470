"""Many seeds, in several processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from multiprocessing import get_context
from typing import TypeVar

from tests.simulation.alignment.simulation import SeedFailedError, SeedResult, simulate
from tests.simulation.database_files import database_folder, use_folder
from tests.simulation.sdpi.simulation import simulate_sdpi
from tests.simulation.sequenced_feed.simulation import NumberedFailedError, simulate_numbered
from tests.simulation.sequencing.endings import simulate_endings
from tests.simulation.sequencing.simulation import SequencesFailedError, simulate_sequences
from tests.simulation.soap.simulation import SoapFailedError, simulate_soap

__all__ = [
    "run_all",
    "run_endings",
    "run_numbered",
    "run_sdpi",
    "run_seed",
    "run_seed_of_2_6",
    "run_sequences",
    "run_soap",
]

T = TypeVar("T")


def run_all(run: Callable[[int], T], seeds: Iterable[int], processes: int) -> Iterator[T]:
    """What each seed came to, in any order."""
    if processes == 1:
        yield from map(run, seeds)
        return
    # Forked from a process that has imported all and run nothing: to import costs a third of 25
    # seeds. Each process has its own files and its own loop.
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with (
        database_folder() as folder,
        # A process that "crashed" leaves tasks behind that nobody ends: not all seeds in one.
        context.Pool(
            processes, initializer=use_folder, initargs=(folder,), maxtasksperchild=25
        ) as pool,
    ):
        yield from pool.imap_unordered(run, seeds, chunksize=4)


def run_seed(seed: int) -> SeedResult | str:
    """An outcome, or the text of a failure."""
    try:
        return simulate(seed)
    except SeedFailedError as error:
        return str(error)


def run_seed_of_2_6(seed: int) -> SeedResult | str:
    """The same, against a provider that speaks TAPI 2.6."""
    try:
        return simulate(seed, tapi_2_6=True)
    except SeedFailedError as error:
        return str(error)


def run_sequences(seed: int) -> str:
    """The text of a failure; empty where there is none."""
    try:
        simulate_sequences(seed)
    except SequencesFailedError as error:
        return str(error)
    return ""


def run_endings(seed: int) -> str:
    """The text of a failure; empty where there is none."""
    try:
        simulate_endings(seed)
    except SequencesFailedError as error:
        return str(error)
    return ""


def run_numbered(seed: int) -> str:
    """The text of a failure; empty where there is none."""
    try:
        simulate_numbered(seed)
    except NumberedFailedError as error:
        return str(error)
    return ""


def run_sdpi(seed: int) -> str:
    """The text of a failure; empty where there is none."""
    try:
        simulate_sdpi(seed)
    except NumberedFailedError as error:
        return str(error)
    return ""


def run_soap(seed: int) -> str:
    """The text of a failure; empty where there is none."""
    try:
        simulate_soap(seed)
    except SoapFailedError as error:
        return str(error)
    return ""
