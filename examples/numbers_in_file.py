"""Numbered messages in a file, each booked once in order, whatever crashes.

    python examples/numbers_in_file.py [FILE] [--database URL]

A line is a message: {"lot": "a", "number": 1, "amount": 100}. The file is read from its beginning
each time: what was booked is known by its number. Without FILE, one is made, with lines that are
swapped, written twice and missing.
"""

import json
from pathlib import Path

from own_inbox import OwnInbox, book, booked
from simulation import described, temporary
from sqlalchemy import create_engine

from instep.sequencing import GapPolicy, SequencerSettings

SETTINGS = SequencerSettings(gap_policy=GapPolicy.WAIT, gap_deadline_s=3600.0)
"""A missing number may be appended to the file: it is waited for, and shown."""
LINES = [("a", 1, 100), ("a", 3, 120), ("b", 2, 7), ("a", 2, 110), ("a", 2, 110), ("b", 3, 8)]


def main(path: Path, database: str) -> None:
    engine = create_engine(database)
    inbox = OwnInbox(engine, book, SETTINGS)
    for line in path.read_bytes().splitlines():
        message = json.loads(line)
        outcome = inbox.receive(message["lot"], message["number"], line)
        print(f"{message['lot']} {message['number']}: {outcome}")
    inbox.tick()
    print("\n".join(["booked:", *booked(engine)]))
    for lot, ranges in inbox.missing().items():
        print(f"missing of {lot}: {ranges}")


def made() -> str:
    path = Path(temporary("messages.jsonl"))
    lines = [json.dumps({"lot": lot, "number": n, "amount": much}) for lot, n, much in LINES]
    path.write_text("\n".join(lines))
    return str(path)


if __name__ == "__main__":
    parser = described(__doc__)
    parser.add_argument("file", nargs="?", metavar="FILE")
    parser.add_argument("--database", default=f"sqlite:///{temporary('own.db')}", metavar="URL")
    given = parser.parse_args()
    main(Path(given.file or made()), given.database)
