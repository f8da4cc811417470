"""Makes each mistake in turn: `make mutations`, or `make mutations ARGS="A3 S1"` for some rules."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tests.rules.mutation import load, result
from tests.rules.mutations import MUTATIONS


def main(rules: Sequence[str] = ()) -> int:
    """Try the mutations of these rules, of all without; 1 where one is not found."""
    chosen = [one for one in MUTATIONS if not rules or one.rule in rules]
    load(mutation.test for mutation in chosen)
    found = 0
    for mutation in chosen:
        ended = result(mutation)
        found += ended == "failed"
        print(f"{'found' if ended == 'failed' else ended.upper():8}{mutation}", flush=True)
    print(f"{found} of {len(chosen)} mistakes are found")
    return int(found < len(chosen))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
