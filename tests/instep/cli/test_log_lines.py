"""Records of loggers on stderr."""

from __future__ import annotations

import io
import json
import logging
import re
import sys

import pytest

from instep.cli.log_lines import LogLines, SampledHandler, log_to_stderr
from instep.cli.output import Format

HOSTILE = "kid \x1b[2J\x1b[31m\nerror: FAKE \u202e\x9b7m"


def _fail() -> None:
    raise ValueError(HOSTILE)


def _record(*, failed: bool = False) -> logging.LogRecord:
    info = None
    if failed:
        try:
            _fail()
        except ValueError:
            info = sys.exc_info()
    return logging.LogRecord(
        "instep.didcomm", logging.WARNING, __file__, 1, "refused: %s", (HOSTILE,), info
    )


@pytest.mark.parametrize("failed", [False, True])
def test_a_json_line_is_printable_and_tells_all(failed: bool) -> None:
    line = LogLines(Format.JSONL).format(_record(failed=failed))
    assert line.isprintable()
    read = json.loads(line)
    assert (read["log"], read["logger"]) == ("warning", "instep.didcomm")
    assert read["text"].startswith(f"refused: {HOSTILE}")
    assert ("Traceback" in read["text"]) is failed


@pytest.mark.parametrize("failed", [False, True])
def test_for_people_no_line_can_be_forged(failed: bool) -> None:
    first, *others = LogLines(Format.TABLE).format(_record(failed=failed)).split("\n")
    assert first.startswith("warning: refused: kid ")
    assert all(line.startswith("  ") for line in others)
    assert all(line.isprintable() for line in (first, *others))


def test_a_program_that_configures_logging_keeps_what_it_chose() -> None:
    root = logging.getLogger()
    kept = root.handlers[:]
    try:
        root.handlers = []
        log_to_stderr(Format.TABLE)
        log_to_stderr(Format.JSONL)
        (handler,) = root.handlers
        assert isinstance(handler.formatter, LogLines)
        assert isinstance(handler, logging.StreamHandler)
        handler.setStream(io.StringIO())
        logging.getLogger("instep.test").warning(HOSTILE)
        assert json.loads(handler.stream.getvalue())["text"] == HOSTILE
        root.handlers = [own := logging.NullHandler()]
        log_to_stderr(Format.TABLE)
        assert root.handlers == [own]
    finally:
        root.handlers = kept


def test_a_flood_of_lines_of_one_place_is_cut_and_counted() -> None:
    clock, out = [0.0], io.StringIO()
    handler = SampledHandler(lambda: clock[0])
    handler.setStream(out)
    handler.setFormatter(LogLines(Format.JSONL))
    logger = logging.getLogger("instep.test.flood")
    logger.propagate = False
    logger.addHandler(handler)
    for number in range(1_000):
        logger.warning("refused: %d", number)
    logger.warning("another place")
    for _ in range(1_000):
        try:
            _fail()
        except ValueError:
            logger.exception("it could not be handled")
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    refused = [f"refused: {number}" for number in range(10)]
    assert [line["text"].split("\n")[0] for line in lines] == [
        *refused,
        "another place",
        *["it could not be handled"] * 2,
    ]
    out.truncate(0)
    handler.tell_left_out()
    assert not out.getvalue()
    clock[0] = 31.0
    handler.tell_left_out()
    told = [json.loads(line)["text"] for line in out.getvalue().strip("\0").splitlines()]
    place = r"test_log_lines\.py:\d+ in the last 31 s"
    assert len(told) == 2
    assert re.fullmatch(f"990 more lines of {place}", told[0])
    assert re.fullmatch(f"998 more lines of {place}", told[1])
