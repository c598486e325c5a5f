"""Sessions: what a person does to results holds, is in the journal, and can be undone without limit."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from helpers.cli_helpers import export
from helpers.hint_sequences import check_facts
from helpers.live_server import labels_of, random_act, without_times
from tubal.app.results import Results
from tubal.app.session import Session
from tubal.cli import run
from tubal.clustering.spectral import two_parts
from tubal.datasets import make_shifted_shapes


@pytest.fixture(scope="module")
def clustered(tmp_path_factory):
    """Results of 64 pictures in four clusters, one of them twice."""
    folder = tmp_path_factory.mktemp("session")
    made = make_shifted_shapes(64, n_classes=4, image_shape=(12, 12), random_state=0)
    export(made.images, folder / "pictures")
    shutil.copy(folder / "pictures" / "0000.png", folder / "pictures" / "copy.png")
    assert run(["cluster", str(folder / "pictures"), "-k", "4", "-o", str(folder / "out"), "--quiet"]) == 0
    return folder


@pytest.fixture
def session(clustered, tmp_path):
    shutil.copytree(clustered / "out", tmp_path / "out")
    return Session(Results.open(tmp_path / "out"))


def again(session):
    """The same results after a restart."""
    return Session(Results.open(session.results.out))


def numbers(session):
    return session.numbers[session.clusterer.labels_]


def members(session, cluster):
    return np.flatnonzero(numbers(session) == cluster)


def test_without_acts_the_state_is_that_of_the_model(session):
    state = session.state()
    np.testing.assert_array_equal(labels_of(state), session.clusterer.found_labels_)
    assert (state["revision"], state["canUndo"], state["canRedo"], state["history"]) == (0, False, False, [])
    assert [cluster["size"] for cluster in state["clusters"]] == np.bincount(labels_of(state)).tolist()
    json.dumps(state, allow_nan=False)


def test_a_move_takes_the_moved_images_only(session):
    before, moved = numbers(session), members(session, 2)[[1, 3, 5]]
    for target in (1, "new"):
        session.act({"kind": "move", "images": moved.tolist(), "to": target})
        after = numbers(session)
        changed = np.flatnonzero(after != before)
        assert set(session._first[changed]) == set(session._first[moved])
        assert (after[moved] == (1 if target == 1 else after[moved[0]])).all()
    assert len(set(numbers(session))) == 5


def test_a_move_to_a_name_gives_the_name(session):
    session.act({"kind": "rename", "cluster": 0, "name": "ring"})
    moved = members(session, 2)[:2].tolist()
    session.act({"kind": "move", "images": moved, "to": 0})
    said = session.clusterer.hints_.names
    assert [said[image] for image in moved] == ["ring", "ring"]
    session.act({"kind": "move", "images": moved, "to": "new", "name": "odd"})
    assert set(members(session, numbers(session)[moved[0]])) == set(moved)


def test_a_new_cluster_can_be_named_without_moving_others(session):
    before, moved = numbers(session), members(session, 2)[:3].tolist()
    session.act({"kind": "move", "images": moved, "to": "new"})
    new = int(numbers(session)[moved[0]])
    session.act({"kind": "rename", "cluster": new, "name": "mine"})
    assert np.flatnonzero(numbers(session) != before).tolist() == moved


@pytest.mark.parametrize("named", [(), (0,), (1,), (0, 1)])
def test_a_merge_takes_the_whole_cluster(session, named):
    for cluster in named:
        session.act({"kind": "rename", "cluster": cluster, "name": f"name {cluster}"})
    both = set(members(session, 0)) | set(members(session, 1))
    state = session.act({"kind": "merge", "from": 0, "into": 1})
    together = [set(members(session, cluster["label"])) for cluster in state["clusters"]]
    assert both in together
    names = {cluster["name"] for cluster in state["clusters"]} - {None}
    assert names == ({f"name {max(named)}"} if named else set())


def test_a_merge_takes_what_pairs_have_left(session):
    images = [int(members(session, cluster)[3]) for cluster in (0, 1, 2)]
    session.act({"kind": "same", "images": [images[0], images[2]]})
    session.act({"kind": "different", "images": images[:2]})
    both = set(members(session, 0)) | set(members(session, 1))
    session.act({"kind": "merge", "from": 0, "into": 1})
    label = numbers(session)[images[1]]
    assert both <= set(members(session, label))


def test_a_split_is_what_its_preview_showed_and_a_merge_joins_it_again(session):
    whole = set(members(session, 0))
    first, second = session.split_preview(0)
    assert set(first) | set(second) == whole
    session.act({"kind": "split", "cluster": 0})
    labels = numbers(session)
    assert len(set(labels[first])) == len(set(labels[second])) == 1 != labels[first[0]] - labels[second[0]]
    assert labels[first[0]] != labels[second[0]]
    session.act({"kind": "merge", "from": int(labels[second[0]]), "into": int(labels[first[0]])})
    assert set(members(session, numbers(session)[first[0]])) == whole


def test_merged_clusters_can_be_split(session):
    session.act({"kind": "merge", "from": 0, "into": 1})
    joined = int(numbers(session)[session.clusterer.found_labels_ == 1][0])
    first, second = session.split_preview(joined)
    session.act({"kind": "split", "cluster": joined})
    labels = numbers(session)
    assert len(set(labels[first])) == len(set(labels[second])) == 1
    assert labels[first[0]] != labels[second[0]]


def test_what_stood_for_a_cluster_can_be_moved_away(session):
    session.act({"kind": "merge", "from": 0, "into": 1})
    joined = members(session, numbers(session)[session.clusterer.found_labels_ == 1][0])
    said = [int(image) for image in session.clusterer.hints_.mentioned]
    session.act({"kind": "move", "images": said, "to": 3})
    left = np.setdiff1d(joined, np.flatnonzero(np.isin(session._first, said)))
    assert len(set(numbers(session)[left])) == 1
    assert (numbers(session)[said] == 3).all()


def test_images_left_out_come_back(session):
    images = members(session, 2)[:2].tolist()
    state = session.act({"kind": "move", "images": images, "to": "out"})
    assert (labels_of(state)[images] == -1).all()
    assert state["clusters"][0] == {**state["clusters"][0], "label": -1, "size": 2, "name": None}
    state = session.act({"kind": "move", "images": images[:1], "to": 3})
    assert labels_of(state)[images].tolist() == [3, -1]


def test_equal_pictures_are_left_out_one_by_one(session):
    copy, original = session.names.index("copy.png"), session.names.index("0000.png")
    (group,) = [g for g in session.duplicates() if copy in [image["row"] for image in g["images"]]]
    assert [image["width"] for image in group["images"]] == [12, 12]
    state = session.act({"kind": "keep", "row": original, "drop": [copy]})
    assert np.flatnonzero(labels_of(state) == -1).tolist() == [copy]
    assert np.flatnonzero(labels_of(again(session).state()) == -1).tolist() == [copy]


def test_the_slider_gives_nested_clusters_and_keeps_names(session):
    session.act({"kind": "rename", "cluster": 0, "name": "ring"})
    seen = {}
    for k in (2, 4, 9):
        state = session.act({"kind": "clusters", "k": k})
        assert state["k"] == k
        seen[k] = session.clusterer._evidence().labels
        assert "ring" in [cluster["name"] for cluster in state["clusters"]]
    for few, many in ((2, 4), (4, 9)):
        assert all(len(set(seen[few][seen[many] == label])) == 1 for label in range(many))
    assert session.act({"kind": "clusters", "k": None})["k"] == 4


def test_a_later_name_counts(session):
    image = int(members(session, 0)[0])
    other = int(members(session, 1)[0])
    session.act({"kind": "same", "images": [image, other]})
    session.act({"kind": "name", "images": [image], "name": "a"})
    session.act({"kind": "name", "images": [other], "name": "b"})
    assert session.clusterer.hints_.names[other] == "b"


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"kind": "fly"}, "no act"),
        ({}, "no act"),
        ({"kind": ["name"]}, "no act"),
        ({"kind": "name", "images": [0], "name": " \n"}, "empty"),
        ({"kind": "name", "images": [0], "name": "x" * 300}, "letters"),
        ({"kind": "name", "images": [0], "name": 3}, "text"),
        ({"kind": "name", "images": [], "name": "x"}, "at least 1"),
        ({"kind": "name", "images": "0", "name": "x"}, "list"),
        ({"kind": "name", "images": [True], "name": "x"}, "not an image"),
        ({"kind": "name", "images": [-1], "name": "x"}, "not an image"),
        ({"kind": "move", "images": [0], "to": 99}, "no cluster"),
        ({"kind": "move", "images": [0], "to": None}, "no cluster"),
        ({"kind": "merge", "from": 1, "into": 1}, "itself"),
        ({"kind": "same", "images": [1]}, "at least 2"),
        ({"kind": "different", "images": list(range(50))}, "too many"),
        ({"kind": "clusters", "k": 10**9}, "number of clusters"),
        ({"kind": "clusters", "k": "3"}, "number of clusters"),
        ({"kind": "undo"}, "nothing to undo"),
        ({"kind": "redo"}, "nothing to redo"),
    ],
)
def test_senseless_acts_get_one_sentence_and_change_nothing(session, request_, message):
    before = session.state()
    with pytest.raises(ValueError, match=message):
        session.act(request_)
    assert session.state() == before
    assert not session.journal.path.exists()


def test_contradictions_change_nothing(session):
    session.act({"kind": "same", "images": [1, 2]})
    before = session.state()
    first, second = session.names[1:3]
    with pytest.raises(ValueError, match=f"^{first} and {second} cannot both belong together and be different; undo"):
        session.act({"kind": "different", "images": [1, 2]})
    assert session.state() == before


def test_a_journal_that_cannot_be_written_changes_nothing(session, monkeypatch):
    before = session.state()

    def full(lines):
        raise OSError("no space left")

    monkeypatch.setattr(session.journal, "_write", full)
    with pytest.raises(OSError, match="no space"):
        session.act({"kind": "rename", "cluster": 0, "name": "x"})
    assert session.state() == before


@pytest.mark.parametrize("seed", range(3))
def test_random_acts_hold_survive_restarts_and_can_all_be_undone(session, seed):
    rng = np.random.default_rng(seed)
    start = without_times(session.state())
    for step in range(60):
        state = session.state()
        act = random_act(rng, state)
        try:
            state = session.act(act)
        except ValueError:
            assert session.state() == state
        check_facts(session.clusterer)
        if step % 20 == 19:
            session = again(session)
            assert session.state() == state
    while session.state()["canUndo"]:
        last = session.act({"kind": "undo"})
    end = without_times(last)
    for key in ("revision", "canRedo", "names"):
        start.pop(key), end.pop(key)
    assert end == start


def test_questions_offer_likely_names(session):
    first = session.question()
    session.act({"kind": "name", "images": [first["image"]], "name": "ring"})
    second = session.question()
    assert second["image"] != first["image"]
    assert {"ring", None} >= {offer["name"] for offer in second["names"]}
    assert second["nDoubtful"] < first["nDoubtful"]
    third = session.question([second["image"]])
    assert third["image"] not in (first["image"], second["image"])
    session.act({"kind": "skip", "image": third["image"]})
    assert again(session).question()["image"] != third["image"]


def test_written_results_show_what_was_said(session):
    out = session.results.out
    session.act({"kind": "rename", "cluster": 0, "name": "ring"})
    session.act({"kind": "clusters", "k": 6})
    state = session.state()
    assert again(session).results.outdated
    from tubal.cli.console import Terminal
    from tubal.cli.hints import write_results
    from tubal.cli.options import State

    options = State(quiet=True)
    write_results(session.results, Terminal(options), options)
    reopened = again(session)
    assert not reopened.results.outdated
    assert reopened.state() == state
    assert "ring" in (out / "labels.csv").read_text()


def test_two_parts_are_of_some_size(rng):
    blobs = np.concatenate([rng.normal(size=(60, 2)), rng.normal(size=(40, 2)) + 8, [[90.0, 0.0]]])
    part = two_parts(blobs, 0)
    assert sorted(np.bincount(part)) in ([40, 61], [41, 60])
    assert len(np.bincount(two_parts(np.zeros((7, 2)), 0))) == 2
