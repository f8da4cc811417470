"""Two `instep run` on one PostgreSQL under a storm; the active one is killed, or stopped and
continued, round after round.

The server itself writes down, in the transaction of each change, which connection made it and who
held the lease. From that: each change was made by the holder, each epoch had one writer, and epochs
never went back in the order of the journal. At the end store and provider are equal.

Run by hand for many rounds: `make pair ROUNDS=50`.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import psycopg
from rich.progress import track

from tests.crash.site_kit import Report, Site, check_round, compare, site, store_url

LEASE_S = 3.0
DEADLINE_S = 60.0
POLL_S = 0.02

# A row for each statement that changed the journal (place: its cursor) or a stream's position
# (place: its ordinal), as the server saw it.
WITNESS = """
CREATE TABLE witness (
    n bigserial PRIMARY KEY, writer text NOT NULL, holder text NOT NULL, epoch bigint NOT NULL,
    stream_no int NOT NULL DEFAULT 0, place bigint NOT NULL);
CREATE FUNCTION witness_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO witness (writer, holder, epoch, place)
    SELECT current_setting('application_name'), holder, epoch, added.cursor
    FROM instep_lease, (SELECT min(cursor) AS cursor FROM added) AS added
    WHERE added.cursor IS NOT NULL;
    RETURN NULL; END $$;
CREATE TRIGGER witness_change AFTER INSERT ON instep_change
REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION witness_change();
CREATE FUNCTION witness_position() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO witness (writer, holder, epoch, stream_no, place)
    SELECT current_setting('application_name'), holder, epoch, NEW.id, NEW.ordinal
    FROM instep_lease;
    RETURN NULL; END $$;
CREATE TRIGGER witness_position AFTER UPDATE ON instep_stream
FOR EACH ROW WHEN (NEW.ordinal <> OLD.ordinal) EXECUTE FUNCTION witness_position();
"""


@dataclass
class PairReport(Report):
    """What the rounds showed besides."""

    kills: int = 0
    stops: int = 0
    pauses: int = 0
    """Stopped for a part of the lease only: nothing has to happen."""
    epochs: int = 0
    commits: int = 0
    take_overs_s: list[float] = field(default_factory=list)
    """From the signal to the new holder's first sign."""
    writers: list[str] = field(default_factory=list)
    """Writes of another than the holder, epochs with two writers or out of order."""
    died: list[str] = field(default_factory=list)
    """Processes that ended although nobody killed them."""

    @property
    def faults(self) -> list[str]:
        return [*super().faults, *self.writers, *self.died]

    @property
    def late(self) -> list[float]:
        """Take-overs that took longer than the lease."""
        return [taken_s for taken_s in self.take_overs_s if taken_s > LEASE_S]

    def __str__(self) -> str:
        longest_s = max(self.take_overs_s, default=0.0)
        return (
            f"{super().__str__()}; {self.kills} kills, {self.stops} stops, {self.pauses} pauses,"
            f" {self.epochs} epochs, {self.commits:,} commits; written by another than the holder:"
            f" {len(self.writers)}, died by themselves: {len(self.died)}; longest take-over"
            f" {longest_s:.2f} s of a lease of {LEASE_S} s, later: {len(self.late)}"
        )


class ProcessPair:
    """The processes, by the names under which they hold the lease and connect."""

    def __init__(self, here: Site) -> None:
        self._site = here
        self._started = 0
        self._server = psycopg.connect(here.store, autocommit=True)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> str:
        self._started += 1
        name = f"process-{self._started}"
        self.processes[name] = self._site.run(
            store=f"{self._site.store}?application_name={name}",
            sink=f'journal = "changes"\nlease_s = {LEASE_S}\nholder = "{name}"',
        )
        stdout = self.processes[name].stdout
        assert stdout is not None
        # Its first line: it has read its configuration, the next process may write another.
        stdout.readline()
        return name

    def lease(self) -> tuple[int, str]:
        """Epoch and holder, as committed."""
        row = self._server.execute("SELECT epoch, holder FROM instep_lease").fetchone()
        assert row is not None
        return row

    def has_written(self, epoch: int) -> bool:
        found = "SELECT 1 FROM witness WHERE epoch = %s LIMIT 1"
        return self._server.execute(found, [epoch]).fetchone() is not None

    def watch(self) -> None:
        """From now on each change is witnessed."""
        self._server.execute(WITNESS.encode())

    def judge(self, report: PairReport) -> None:
        """Check the records of the witness."""
        asked = "SELECT writer, holder, epoch, stream_no FROM witness ORDER BY stream_no, place"
        witnessed = self._server.execute(asked).fetchall()
        writer_of: dict[int, str] = {}
        for writer, holder, epoch, _ in witnessed:
            if writer != holder or writer_of.setdefault(epoch, writer) != writer:
                report.writers.append(f"{writer} wrote in epoch {epoch} of {holder}")
        for (_, _, before, one), (_, _, after, other) in pairwise(witnessed):
            if one == other and after < before:
                report.writers.append(f"epoch {after} wrote after epoch {before}, stream {one}")
        report.epochs, report.commits = len(writer_of), sum(row[3] > 0 for row in witnessed)

    def close(self) -> None:
        self._server.close()
        for process in self.processes.values():
            # A stopped process is ended by no other signal.
            process.kill()
            with process:
                pass


@contextlib.contextmanager
def pair(here: Site) -> Iterator[ProcessPair]:
    """No process yet; all that were started are ended."""
    both = ProcessPair(here)
    try:
        yield both
    finally:
        both.close()


def until(done: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not done():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"waited {DEADLINE_S:.0f} s for {what}")
        time.sleep(POLL_S)


def one_round(both: ProcessPair, rng: random.Random, report: PairReport) -> None:
    """Take the active one away, in one of three ways."""
    until(lambda: both.lease()[1] in both.processes, "a holder")
    epoch, holder = both.lease()
    until(lambda: both.has_written(epoch) or both.lease()[0] != epoch, f"{holder} to write")
    time.sleep(rng.uniform(0.0, 0.6))
    epoch, holder = both.lease()
    active = both.processes[holder]
    way = rng.choices(("kill", "stop", "pause"), (4, 4, 1))[0]
    active.send_signal(signal.SIGKILL if way == "kill" else signal.SIGSTOP)
    signalled_s = time.monotonic()
    if way == "pause":
        time.sleep(rng.uniform(0.0, LEASE_S / 2))
        active.send_signal(signal.SIGCONT)
        report.pauses += 1
        return
    until(lambda: both.lease()[0] > epoch and both.lease()[1] != "", "the take-over")
    report.take_overs_s.append(time.monotonic() - signalled_s)
    if way == "kill":
        report.kills += 1
        with both.processes.pop(holder):
            pass
        both.start()
    else:
        report.stops += 1
        time.sleep(rng.uniform(0.0, 1.0))
        active.send_signal(signal.SIGCONT)


def rounds(count: int, *, seed: int, storm_per_s: float, show: bool = False) -> PairReport:
    """Take the active one away `count` times; then let the storm end, and compare."""
    rng = random.Random(seed)
    report = PairReport()
    options = ("--seed", str(seed), "--storm", str(storm_per_s), "--alarms", "50")
    with store_url("postgresql") as store, site(store, *options) as here, pair(here) as both:
        both.start()
        both.watch()
        both.start()
        for number in track(range(count), "taking away", disable=not show):
            report.rounds = number + 1
            one_round(both, rng, report)
            check_round(here, report)
            for name, process in both.processes.items():
                if process.poll() is not None:
                    stderr_tail = (here.folder / "stderr").read_text()[-2_000:]
                    report.died.append(f"round {report.rounds}: {name}: {stderr_tail}")
            if report.faults:
                break
        here.command("storm", changes_per_s=0)
        with contextlib.suppress(TimeoutError):
            until(lambda: not compare(here), "both sides to be equal")
        report.differences += compare(here)
        check_round(here, report)
        both.judge(report)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--storm", type=float, default=200.0, help="changes per second")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}", flush=True)
    report = rounds(chosen.rounds, seed=chosen.seed, storm_per_s=chosen.storm, show=True)
    print(report)
    for line in report.faults[:20]:
        print(line)
    return 0 if not (report.faults or report.late) else 1


if __name__ == "__main__":
    sys.exit(main())
