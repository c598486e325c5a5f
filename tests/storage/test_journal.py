"""The journal of answers: nothing that was written is lost, whatever happens to the last line."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from tubal.storage.journal import KINDS, Entry, Journal, current_answers

WRITE_FOREVER = """
    import sys
    from tubal.storage.journal import Entry, Journal
    journal = Journal(sys.argv[1])
    print("ready", flush=True)
    for number in range(10**6):
        journal.append(Entry("name", (f"{number}",), f"name {number}"))
        print(number, flush=True)
"""


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "out.hints")


def name(image, text):
    return Entry("name", (image,), text)


def test_answers_come_back_in_order(journal):
    entries = [name("a", "=1+1"), Entry("same", ("a", "b")), Entry("different", ("b", "c"), files=("b.png", "ü.png"))]
    journal.append(entries[0])
    journal.append(*entries[1:])
    assert Journal(journal.path).read() == entries


def test_a_missing_journal_is_empty(journal):
    assert journal.read() == []
    assert journal.undo() is None


def test_undo_takes_back_one_answer_after_the_other(journal):
    journal.append(name("a", "x"), name("b", "y"))
    assert [journal.undo().entries, journal.undo().entries] == [(name("b", "y"),), (name("a", "x"),)]
    assert journal.undo() is None
    journal.append(name("c", "z"))
    assert [entry.name for entry in journal.read()] == ["z"]
    assert journal.mentioned() == {"a", "b", "c"}


def test_redo_repeats_what_was_undone_last(journal):
    journal.append(name("a", "x"), name("b", "y"), name("c", "z"))
    journal.undo(), journal.undo()
    assert journal.redo().entries == (name("b", "y"),)
    assert [entry.name for entry in Journal(journal.path).read()] == ["x", "y"]
    journal.append(name("d", "w"))
    assert journal.redo() is None
    assert not journal.can_redo
    assert [journal.undo().entries[0].name for _ in range(3)] == ["w", "y", "x"]


def test_an_act_is_one_line_that_is_there_or_not(journal):
    journal.append(name("a", "x"))
    journal.append_act([name("b", "y"), Entry("different", ("a", "b")), Entry("clusters", (), "7")], "three things")
    assert [act.text for act in journal.history()] == ["a is x", "three things"]
    assert journal.n_clusters() == 7
    whole = journal.path.read_bytes()
    for cut in range(2, len(whole) - whole.index(b"\n") - 1, 17):
        journal.path.write_bytes(whole[:-cut])
        assert journal.read() == [name("a", "x")]
    journal.path.write_bytes(whole)
    assert len(journal.undo().entries) == 3
    assert journal.n_clusters() is None


def test_pairs_can_be_taken_back_alone(journal):
    journal.append(Entry("same", ("a", "b")), Entry("same", ("b", "c")), Entry("unpair", ("b", "a")))
    assert journal.current() == [Entry("same", ("b", "c"))]


def test_a_journal_follows_what_another_process_writes(journal):
    other = Journal(journal.path)
    for i in range(3):
        journal.append(name(str(i), "x"))
        assert len(other.read()) == i + 1


def test_later_names_and_forgetting_replace_earlier_answers(journal):
    journal.append(name("a", "x"), Entry("same", ("a", "b")), name("a", "y"), name("b", "z"), Entry("forget", ("b",)))
    assert journal.current() == [name("a", "y")]


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_line_loses_only_itself(journal, cut):
    journal.append(name("a", "x"), name("b", "y"))
    journal.path.write_bytes(journal.path.read_bytes()[:-cut])
    left = ["x", "y"] if cut == 1 else ["x"]  # only the line break is missing
    assert [entry.name for entry in journal.read()] == left
    journal.append(name("c", "z"))
    assert [entry.name for entry in journal.read()] == [*left, "z"]


@pytest.mark.parametrize(
    "line", [b"\xff\xfe\n", b"[1]\n", b'{"name": 3}\n', b'{"same": true, "images": ["a"]}\n', b"\n"]
)
def test_foreign_lines_are_ignored(journal, line):
    journal.append(name("a", "x"))
    with open(journal.path, "ab") as stream:
        stream.write(line)
    journal.append(name("b", "y"))
    assert [entry.name for entry in journal.read()] == ["x", "y"]


@pytest.mark.parametrize(
    "entry", [("name", ("a",), ""), ("same", ("a",), ""), ("other", ("a",), ""), ("forget", ("a",), "x")]
)
def test_impossible_entries_are_refused(entry):
    with pytest.raises(ValueError, match="an entry"):
        Entry(*entry)


@pytest.mark.parametrize("seed", range(2))
def test_a_kill_loses_no_answer_that_was_confirmed(journal, seed):
    command = [sys.executable, "-c", textwrap.dedent(WRITE_FOREVER), str(journal.path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    time.sleep(float(np.random.default_rng(seed).uniform(0.05, 0.3)))
    process.send_signal(signal.SIGKILL)
    confirmed = [int(line) for line in process.stdout.read().split()]
    process.wait()
    found = [entry.name for entry in journal.read()]
    assert found[: len(confirmed)] == [f"name {number}" for number in confirmed]
    assert len(found) <= len(confirmed) + 1


def answers_slowly(entries):
    """What counts after all entries, by the rules as they are written down."""
    found = []
    for entry in entries:
        if entry.kind == "forget":
            found = [other for other in found if entry.images[0] not in other.images]
        elif entry.kind == "unpair":
            pair = set(entry.images)
            found = [other for other in found if other.kind not in ("same", "different") or set(other.images) != pair]
        elif entry.kind in ("name", "same", "different", "alone"):
            if entry.kind == "name":
                found = [other for other in found if (other.kind, other.images) != ("name", entry.images)]
            if entry not in found:
                found.append(entry)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_current_answers_follow_the_rules(seed):
    rng = np.random.default_rng(seed)
    entries = []
    for _ in range(60):
        kind = str(rng.choice(list(KINDS)))
        images = tuple(str(image) for image in rng.choice(list("abcde"), KINDS[kind], replace=False))
        entries.append(Entry(kind, images, str(rng.integers(3)) if kind in ("name", "clusters") else ""))
    assert current_answers(entries) == answers_slowly(entries)


def test_a_journal_that_was_replaced_is_read_again(journal):
    journal.append(name("a", "x"), name("b", "y"))
    assert len(journal.read()) == 2
    other = Journal(journal.path.with_name("other.hints"))
    other.append(name("c", "z"))
    other.path.replace(journal.path)
    assert journal.read() == [name("c", "z")]
    journal.path.unlink()
    assert journal.read() == []
