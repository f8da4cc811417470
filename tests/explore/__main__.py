"""Explores the machines: `make explore` the large worlds, `make explore ARGS=--small` the closed
ones. Prints states, depth and seconds, what no history has reached, and the shortest history that
leads to a violation.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from tests.explore.decisions.tables import DECISIONS
from tests.explore.planted import PLANTED, planted
from tests.explore.search import Explored, Violation, explore
from tests.explore.transitions import taken
from tests.explore.worlds import (
    ALIGNMENT,
    BEGUN,
    LARGE_ALIGNMENT,
    LARGE_SEQUENCES,
    SEQUENCES,
)


def report(name: str, found: Explored) -> None:
    rate = found.states / max(found.seconds, 0.001)
    size = "closed: no new state is left" if found.closed else "more states are left"
    print(
        f"{name}: {found.states:,} states, {found.moves:,} moves, depth {found.depth},"
        f" {found.seconds:.1f} s ({rate:,.0f} states/s); {size}",
        flush=True,
    )
    if found.violation:
        print(f"  VIOLATION: {found.violation}")
        for step, move in enumerate(found.history, 1):
            print(f"  {step:3} {move}")


def visit(worlds: Mapping[str, Any], states: int, *, least: int) -> tuple[int, int]:
    """Explore worlds until `least` states were visited together; returns these and violations."""
    total = violations = 0
    for number, (name, world) in enumerate(worlds.items()):
        share = max(states, (least - total) // (len(worlds) - number))
        found = explore(world, most_states=share)
        report(name, found)
        total += found.states
        violations += bool(found.violation)
    return total, violations


def compare_decisions() -> int:
    """Compare each decision with its reference in every small case; how many differ."""
    wrong = 0
    for name, compare in DECISIONS.items():
        try:
            print(f"{name}: {compare():,} cases", flush=True)
        except Violation as found:
            wrong += 1
            print(f"{name}: VIOLATION: {found}", flush=True)
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.explore", description=__doc__)
    parser.add_argument("--small", action="store_true", help="the closed worlds alone")
    parser.add_argument(
        "--states", type=int, default=1_000_000, help="to visit of each machine, in large worlds"
    )
    parser.add_argument("--machine", choices=("alignment", "sequencer"), help="this one alone")
    parser.add_argument("--world", help="this world alone, by the beginning of its name")
    options = parser.parse_args()
    machines: dict[str, Mapping[str, Any]] = {
        "alignment": ALIGNMENT | BEGUN if options.small else LARGE_ALIGNMENT,
        "sequencer": SEQUENCES if options.small else LARGE_SEQUENCES,
    }
    violations = 0
    with taken() as transitions:
        for machine, worlds in machines.items():
            if options.machine not in (None, machine):
                continue
            chosen = {
                name: world
                for name, world in worlds.items()
                if name.startswith(options.world or "")
            }
            least = 0 if options.small else options.states
            limit = 10_000_000 if options.small else 0
            total, wrong = visit(chosen, limit, least=least)
            violations += wrong
            print(f"{machine}: {total:,} distinct states in all", flush=True)
    print(transitions.report())
    violations += compare_decisions()
    for name, mistake in PLANTED.items():
        with planted(mistake) as world:
            found = explore(world, most_states=200_000)
        report(f"planted: {name}", found)
        violations += not found.violation
    print("no violation, and each planted mistake was found" if not violations else "FAILED")
    return 1 if violations else 0


if __name__ == "__main__":
    raise SystemExit(main())
