"""`instep quarantine list|show|replay|drop`."""

import base64
from pathlib import Path

from instep.model.records import Unreadable
from tests.instep.cli.cli_kit import READABLE_RAW, UNREADABLE_RAW, failed, fill, instep, lines


def test_records_are_listed_with_their_reasons(tmp_path: Path) -> None:
    url = fill(tmp_path)
    first, second = lines(instep("quarantine", "list", "--store", url, "--format", "jsonl"))
    assert first == {
        "id": 1,
        "consumer": "east",
        "stream": "network",
        "reason": "no such spelling",
        "token": "t9",
        "received_at": first["received_at"],
        "replayed_at": None,
        "size_bytes": len(READABLE_RAW),
        "digest": Unreadable("network", READABLE_RAW, "").digest,
        "key": None,
        "times": 1,
        "last_at": first["received_at"],
        "accepted_at": None,
    }
    assert (second["reason"], second["token"]) == ("not JSON", None)
    assert (
        lines(
            instep("quarantine", "list", "--store", url, "--stream", "quiet", "--format", "jsonl")
        )
        == []
    )
    shown = instep("quarantine", "list", "--store", url).stdout
    assert "not JSON" in shown
    assert "…" not in shown  # whole at 80 columns
    assert shown.rstrip().endswith("2 in quarantine")


def test_a_record_is_shown_with_its_bytes(tmp_path: Path) -> None:
    url = fill(tmp_path)
    (one,) = lines(instep("quarantine", "show", "1", "--store", url, "--format", "jsonl"))
    assert one["raw"] == READABLE_RAW.decode()
    (other,) = lines(instep("quarantine", "show", "2", "--store", url, "--format", "jsonl"))
    assert base64.b64decode(other["raw_base64"]) == UNREADABLE_RAW
    assert "raw" not in other
    shown = instep("quarantine", "show", "2", "--store", url).stdout
    assert "not JSON" in shown
    assert r'{"log-record-header": \xff' in shown


def test_an_id_that_is_not_there_is_an_error_with_where_to_look(tmp_path: Path) -> None:
    error = failed(instep("quarantine", "show", "99", "--store", fill(tmp_path)), 2)
    assert "error: nothing in quarantine has the ID 99" in error
    assert "instep quarantine list" in error


def test_what_can_be_read_now_is_committed_and_leaves(tmp_path: Path) -> None:
    url = fill(tmp_path)
    result = instep("quarantine", "replay", "1", "--store", url)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "1: replayed, 1 entity changed\n1 replayed, 0 still in quarantine\n"
    by_key = {
        line["key"]: line for line in lines(instep("entities", "--store", url, "--format", "jsonl"))
    }
    assert by_key["k9"]["body"] == {"uuid": "u9"}
    again = instep("quarantine", "replay", "1", "--store", url)
    assert again.stdout.startswith("1: was replayed at ")


def test_what_still_cannot_be_read_stays_and_ends_with_1(tmp_path: Path) -> None:
    url = fill(tmp_path)
    result = instep("quarantine", "replay", "--all", "--store", url)
    assert result.exit_code == 1
    first, second, total = result.stdout.splitlines()
    assert first == "1: replayed, 1 entity changed"
    assert second.startswith("2: still not readable: ")
    assert total == "1 replayed, 1 still in quarantine"
    listed = lines(instep("quarantine", "list", "--store", url, "--format", "jsonl"))
    assert [line["replayed_at"] is None for line in listed] == [False, True]


def test_replaying_needs_to_know_what(tmp_path: Path) -> None:
    url = fill(tmp_path)
    for arguments in ([], ["1", "--all"]):
        error = failed(instep("quarantine", "replay", *arguments, "--store", url), 2)
        assert "to do: name IDs, or --all" in error


def test_what_is_dropped_is_gone_and_what_is_not_named_stays(tmp_path: Path) -> None:
    url = fill(tmp_path)
    by_id = ("2", "--yes", "--store", url, "--format", "jsonl")
    assert lines(instep("quarantine", "drop", *by_id)) == [{"dropped": 1}]
    (left,) = lines(instep("quarantine", "list", "--store", url, "--format", "jsonl"))
    assert left["id"] == 1
    quiet = instep("quarantine", "drop", "--all", "--stream", "quiet", "--yes", "--store", url)
    assert quiet.stdout == "0 dropped\n"
    network = instep("quarantine", "drop", "--all", "--stream", "network", "--yes", "--store", url)
    assert network.stdout == "1 dropped\n"
    assert lines(instep("quarantine", "list", "--store", url, "--format", "jsonl")) == []
    assert instep("quarantine", "drop", "--all", "--yes", "--store", url).stdout == "0 dropped\n"


def test_a_record_that_is_accepted_as_lost_keeps_nothing_back(tmp_path: Path) -> None:
    url = fill(tmp_path)
    digest = Unreadable("network", UNREADABLE_RAW, "").digest
    accepted = lines(instep("quarantine", "accept", digest, "--store", url, "--format", "jsonl"))
    assert accepted == [{"digest": digest, "accepted": 1}]
    _, one = lines(instep("quarantine", "list", "--store", url, "--format", "jsonl"))
    assert one["accepted_at"] is not None
    other = instep("quarantine", "accept", "0" * 32, "--store", url)
    assert (other.exit_code, other.stdout) == (1, "0 accepted\n")
    assert "'x' is not a digest" in failed(instep("quarantine", "accept", "x", "--store", url), 2)


def test_dropping_needs_to_know_what_and_a_yes(tmp_path: Path) -> None:
    url = fill(tmp_path)
    for arguments in ([], ["1", "--all"], ["1", "--stream", "network"]):
        error = failed(instep("quarantine", "drop", *arguments, "--yes", "--store", url), 2)
        assert "to do: name IDs, or --all" in error
    assert "give --yes" in failed(instep("quarantine", "drop", "1", "--store", url), 2)
    error = failed(instep("quarantine", "drop", "1", "99", "--yes", "--store", url), 2)
    assert "nothing in quarantine has the ID 99" in error
    assert len(lines(instep("quarantine", "list", "--store", url, "--format", "jsonl"))) == 2
