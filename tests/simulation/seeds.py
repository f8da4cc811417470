"""Many seeds, in several processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from multiprocessing import get_context

from tests.simulation.simulation import Outcome, SeedFailedError, simulate
from tests.simulation.store import database_folder, use_folder

__all__ = ["outcomes"]


def outcomes(seeds: Iterable[int], processes: int) -> Iterator[Outcome | str]:
    """What each seed came to: an outcome, or the text of its failure."""
    if processes == 1:
        yield from map(run, seeds)
        return
    # Started anew, not forked: each process has its own files and its own loop.
    with (
        database_folder() as folder,
        get_context("spawn").Pool(processes, initializer=use_folder, initargs=(folder,)) as pool,
    ):
        yield from pool.imap_unordered(run, seeds, chunksize=4)


def run(seed: int) -> Outcome | str:
    try:
        return simulate(seed)
    except SeedFailedError as error:
        return str(error)
