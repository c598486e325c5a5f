"""A session on one folder of results: what a page shows of them, and what a person does to them.

:class:`Session` adds to :class:`~tubal.app.results.Results` what a page needs: acts such as "move these images", undo
and redo, questions, and the state as JSON values. Every act becomes entries of the journal, and the state is a function
of the model file and the journal alone, so that a restart gives the same state.
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tubal.app.exports import picture_size
from tubal.app.results import Results, image_names, journal_hints, places_of, why_contradicting
from tubal.clustering.hints import ContradictionError
from tubal.storage.journal import Entry, current_answers
from tubal.text import count

if TYPE_CHECKING:
    from tubal.clustering import Hints

Json = dict[str, Any]
Indices = NDArray[np.intp]

# The number of the group of images that were left out.
OUT = -1
# An image with a lower confidence is doubtful, as in the report.
DOUBTFUL = 0.5
# Further answers hardly change anything when the next one is expected to change fewer images.
LEAST_GAIN = 1.0
# Names offered for an image, one for each digit key.
MOST_NAMES = 9
# A name is a line of text, not a document.
MOST_LETTERS = 200
# Pairs of "different" grow with the square of the number of images.
MOST_DIFFERENT = 40
# A person can choose among at least as many numbers of clusters, if there are as many images.
LEAST_RANGE = 100


class Session:
    """What a page shows of results, and what can be done to them.

    Not safe for several threads: one worker does all that changes it.

    Parameters
    ----------
    results : Results
        Opened results; nobody else may change them.
    """

    def __init__(self, results: Results) -> None:
        self.results, self.journal = results, results.journal
        self.clusterer: Any = results.clusterer
        self.digests = results.digests
        self.names = image_names(results.clusterer)
        self._n_lines = self.journal.n_lines
        self._place = places_of(self.digests)
        # Equal images share what is said about them: the first one stands for all.
        self._first = np.array([self._place[digest] for digest in self.digests], dtype=np.intp)
        # Labels must not depend on whether a journal was applied, so what follows from hints is always computed.
        self._apply()

    @property
    def n_images(self) -> int:
        """Number of images."""
        return len(self.digests)

    @property
    def changed(self) -> bool:
        """Whether the files in the folder do not show all that the journal holds."""
        return self.results.outdated or self.journal.n_lines != self._n_lines

    # --- what is shown -----------------------------------------------------------------------------------
    def state(self) -> Json:
        """Return labels, confidences, clusters and history as JSON values.

        Returns
        -------
        dict
            See the table of requests in ``docs/open.md``.
        """
        from tubal.report.page import pack

        clusterer, history = self.clusterer, self.journal.history()
        doubtful = self.doubtful
        labels = self.numbers[clusterer.labels_]
        labels[sorted(self.dropped)] = OUT
        said = {entry.name for entry in self._read("name")}
        return {
            "revision": self.journal.n_lines,
            "labels": pack(labels, "int32"),
            "confidence": pack(clusterer.confidence_, "float32"),
            "clusters": self._clusters(labels, doubtful),
            "doubtful": np.flatnonzero(doubtful).tolist(),
            "nDoubtful": clusterer.n_doubtful_,
            "hinted": clusterer.hints_.mentioned.tolist(),
            "names": sorted(said | {name for name in clusterer.names_ if name is not None}),
            "candidates": [int(k) for k in clusterer.n_clusters_candidates_],
            "nClusters": int(clusterer.n_clusters_),
            "mostClusters": self.most_clusters,
            "k": getattr(clusterer, "n_chosen_", None) or int(clusterer.found_labels_.max()) + 1,
            "history": [{"text": act.text, "time": act.time} for act in history],
            "canUndo": bool(history),
            "canRedo": self.journal.can_redo,
        }

    @property
    def doubtful(self) -> NDArray[np.bool_]:
        """Images (n,) with a low confidence. Outliers do not count: they are marked as such."""
        found: NDArray[np.bool_] = (self.clusterer.confidence_ < DOUBTFUL) & ~self.outliers
        found[sorted(self.dropped)] = False
        return found

    @cached_property
    def outliers(self) -> NDArray[np.bool_]:
        """Images (n,) that are unlike the others."""
        from tubal.report.from_clusterer import as_mask

        return as_mask(self.clusterer.outliers_, self.n_images)

    def _clusters(self, labels: Indices, doubtful: NDArray[np.bool_]) -> list[Json]:
        """Return name and counts of each cluster by its number; images that were left out are cluster -1."""
        present, place, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        n_doubtful = np.bincount(place, doubtful)
        n_outliers = np.bincount(place, self.outliers)
        mean = np.bincount(place, self.clusterer.confidence_) / sizes
        label_of = {int(number): label for label, number in enumerate(self.numbers)}
        return [
            {
                "label": int(number),
                "name": None if number == OUT else self.clusterer.names_[label_of[int(number)]],
                "size": int(sizes[k]),
                "doubtful": int(n_doubtful[k]),
                "outliers": int(n_outliers[k]),
                "confidence": round(float(mean[k]), 4),
            }
            for k, number in enumerate(present)
        ]

    def question(self, skip: Iterable[int] = ()) -> Json:
        """Return the image whose name would tell most, and the names it may have.

        Parameters
        ----------
        skip : iterable of int, default=()
            Images not to ask about, in addition to those that were skipped before.

        Returns
        -------
        dict
            ``image`` is None if there is nothing left to ask.
        """
        left_out = {*skip, *self.skipped, *self.dropped}
        found, gains = self.clusterer.questions(1, skip=sorted(left_out), return_gain=True)
        doubtful = self.clusterer.n_doubtful_
        if len(found) == 0:
            return {"image": None, "nDoubtful": doubtful, "enough": True, "names": [], "gain": 0.0}
        image, gain = int(found[0]), float(gains[0])
        return {
            "image": image,
            "names": self._likely_names(image),
            "nDoubtful": doubtful,
            "gain": round(gain, 2),
            "enough": gain < LEAST_GAIN,
        }

    def _likely_names(self, image: int) -> list[Json]:
        """Return the clusters an image may belong to, by the edges around it; then other clusters with a name."""
        clusterer = self.clusterer
        n_clusters = int(clusterer.n_clusters_)
        row = clusterer.affinity_[[image]]
        around = row + 0.5 * (row @ clusterer.affinity_) / max(float(row.sum()), 1e-12)
        shares = np.bincount(clusterer.labels_[around.indices], around.data, minlength=n_clusters).astype(np.float64)
        shares[clusterer.labels_[image]] += 1e-9
        shares /= max(float(shares.sum()), 1e-12)
        sizes = np.bincount(clusterer.labels_, minlength=n_clusters)
        order = np.lexsort((-sizes, -shares))
        listed = [k for k in order if clusterer.names_[k] is not None or shares[k] > 0.01]
        return [
            {"name": clusterer.names_[k], "cluster": int(self.numbers[k]), "chance": round(float(shares[k]), 3)}
            for k in listed[:MOST_NAMES]
        ]

    def split_preview(self, cluster: int) -> list[list[int]]:
        """Return the two parts into which a cluster would be divided, the larger first.

        Parameters
        ----------
        cluster : int
            Number of a cluster.

        Returns
        -------
        list of two lists of int
            Images.
        """
        return [part.tolist() for part in self._plan_split(self._cluster(cluster))[1]]

    def duplicates(self) -> list[Json]:
        """Return groups of near-duplicates of which none was left out, each with a proposal which image to keep.

        Returns
        -------
        list of dict
            ``keep``, and ``images`` with ``row``, ``width``, ``height`` and ``bytes``, None where they are not known.
        """
        found, dropped = [], self.dropped
        for group in self.clusterer.duplicates_:
            images = [self._measures(int(image)) for image in group if int(image) not in dropped]
            if len(images) > 1:
                best = max(
                    images, key=lambda image: ((image["width"] or 0) * (image["height"] or 0), image["bytes"] or 0)
                )
                found.append({"keep": best["row"], "images": images})
        return found

    def _measures(self, image: int) -> Json:
        """Return how large the file of an image is."""
        size, file = picture_size(self.files[image]), self.files[image]
        width, height = size or (None, None)
        return {"row": image, "width": width, "height": height, "bytes": os.stat(file).st_size if size else None}

    @cached_property
    def files(self) -> list[str]:
        """The file of each image; empty if it is not known, or holds other images, too."""
        listed = self.results.listed_files
        uses = Counter(listed)
        return [file if uses[file] == 1 else "" for file in listed]

    def forget_files(self) -> None:
        """Look again where files are, after some were moved."""
        vars(self).pop("files", None)

    # --- what follows from the journal -------------------------------------------------------------------
    @property
    def skipped(self) -> set[int]:
        """Images not to ask about any more."""
        return {image for entry in self._read("skip") if (image := self._find(entry)) is not None}

    @property
    def dropped(self) -> set[int]:
        """Images that were left out: no export holds them."""
        found: set[int] = set()
        for entry in self._read("drop", "keep"):
            image = self._find(entry)
            if image is not None:
                (found.add if entry.kind == "drop" else found.discard)(image)
        return found

    def _read(self, *kinds: str) -> list[Entry]:
        return [entry for entry in self.journal.read() if entry.kind in kinds]

    def _find(self, entry: Entry) -> int | None:
        """Return the image of an entry; equal images are told apart by the names of their files."""
        first = self._place.get(entry.images[0])
        if first is None or not entry.files or self.names[first] == entry.files[0]:
            return first
        equal = [i for i, digest in enumerate(self.digests) if digest == entry.images[0]]
        return next((i for i in equal if self.names[i] == entry.files[0]), first)

    def _apply(self) -> None:
        """Compute everything that follows from the model and the journal."""
        hints = self._hints_after(())
        self.clusterer._set_said(hints, self.journal.n_clusters())
        self._renumber()

    def _hints_after(self, entries: Sequence[Entry]) -> Hints:
        """Return the hints if some entries were added to the journal, or raise an error about a contradiction."""
        said = current_answers([*self.journal.read(), *entries])
        mentioned = self.journal.mentioned() | {image for entry in entries for image in entry.images}
        try:
            return journal_hints(self.clusterer.hints_, self.digests, said, mentioned)
        except ContradictionError as error:
            raise ValueError(f"{why_contradicting(error, self.names)}, or move one of them") from error

    def _renumber(self) -> None:
        """Number clusters so that one keeps its number while others come and go.

        A cluster has the number of the cluster without hints with which it shares most images; new ones come after
        these, in the order of their first images.
        """
        from scipy.optimize import linear_sum_assignment

        labels, found = self.clusterer.labels_, self.clusterer.found_labels_
        n_clusters, n_found = int(labels.max()) + 1, int(found.max()) + 1
        overlap = np.bincount(labels * n_found + found, minlength=n_clusters * n_found).reshape(n_clusters, n_found)
        rows, columns = linear_sum_assignment(-overlap)
        numbers = np.full(n_clusters, -1, np.intp)
        matched = overlap[rows, columns] > 0
        numbers[rows[matched]] = columns[matched]
        first = np.unique(labels, return_index=True)[1]
        new = np.flatnonzero(numbers < 0)
        numbers[new[np.argsort(first[new])]] = n_found + np.arange(len(new))
        self.numbers = numbers

    # --- acts --------------------------------------------------------------------------------------------
    def act(self, request: Mapping[str, object]) -> Json:
        """Do what a person asks for, write it to the journal, and return the new state.

        Parameters
        ----------
        request : mapping
            ``kind`` and what it needs, see ``docs/open.md``.

        Returns
        -------
        dict
            The state. If the request makes no sense or contradicts what was said, an error is raised and nothing has
            changed.
        """
        kind = request.get("kind")
        if kind in ("undo", "redo"):
            done = self.journal.undo() if kind == "undo" else self.journal.redo()
            if done is None:
                raise ValueError(f"there is nothing to {kind}")
            self._apply()
            return self.state()
        handlers = {
            "name": self._name,
            "rename": self._rename,
            "merge": self._merge,
            "move": self._move,
            "same": self._same,
            "different": self._different,
            "split": self._split,
            "clusters": self._choose_number,
            "keep": self._keep,
            "skip": self._skip,
        }
        handler = handlers.get(kind) if isinstance(kind, str) else None
        if handler is None:
            raise ValueError(f"there is no act {kind!r}; known are {', '.join((*handlers, 'undo', 'redo'))}")
        entries, text = handler(request)
        self._commit(entries, text)
        return self.state()

    def _commit(self, entries: Sequence[Entry], text: str) -> None:
        """Apply entries and write them to the journal; if one of the two fails, nothing has changed."""
        if not entries:
            raise ValueError("that is so already")
        hints = self._hints_after(entries)
        chosen = [int(entry.name) or None for entry in entries if entry.kind == "clusters"]
        number = chosen[-1] if chosen else self.journal.n_clusters()
        former = self.clusterer.hints_, getattr(self.clusterer, "n_chosen_", None)
        if (hints, number) != former:
            self.clusterer._set_said(hints, number)
        try:
            self.journal.append_act(entries, text)
        except OSError:
            self.clusterer._set_said(*former)
            raise
        finally:
            self._renumber()

    # Every act returns its entries, and a sentence for the history.
    def _name(self, request: Mapping[str, object]) -> tuple[list[Entry], str]:
        images, name = self._images(request), _text(request, "name")
        entries = [self._entry("name", image, name=name) for image in images]
        try:
            self._hints_after(entries)
        except ValueError:  # the last word about an image counts
            entries = [*self._take_back(images), *entries]
        return [*self._back(images), *entries], f"{self._say(images)} named {name}"

    def _rename(self, request: Mapping[str, object]) -> tuple[list[Entry], str]:
        cluster, name = self._cluster(request.get("cluster")), _text(request, "name")
        title = self._title(cluster)
        return self._name_cluster(cluster, name), f"{title} named {name}"

    def _name_cluster(self, cluster: int, name: str) -> list[Entry]:
        """Return entries that give a name to a cluster: to all its images that have one, or to its typical ones."""
        said = self.clusterer.hints_.names
        named = [image for image in said if self.clusterer.labels_[image] == cluster]
        anchors = named or self._anchors(cluster)
        return [self._entry("name", image, name=name) for image in anchors if said.get(image) != name]

    def _merge(self, request: Mapping[str, object]) -> tuple[list[Entry], str]:
        source, target = self._cluster(request.get("from")), self._cluster(request.get("into"))
        if source == target:
            raise ValueError("a cluster cannot be merged with itself; name two clusters")
        names = self.clusterer.names_
        text = f"{self._title(source)} merged into {self._title(target)}"
        entries = self._unpair_between(source, target)
        name = names[target] or names[source]
        if name is not None:
            for cluster in (source, target):
                if names[cluster] != name:
                    entries += self._name_cluster(cluster, name)
            return entries, text
        first, *others = dict.fromkeys([*self._anchors(target), *self._centers(target, source), *self._anchors(source)])
        return [*entries, *(self._entry("same", image, first) for image in others)], text

    def _centers(self, *clusters: int) -> list[int]:
        """Return the most typical images of clusters without hints that lie in some clusters."""
        evidence, labels, alone = self.clusterer._evidence(), self.clusterer.labels_, self.clusterer.hints_.alone
        centers = [int(self._first[evidence.center(k, alone)]) for k in range(len(evidence.centers))]
        return [image for image in centers if labels[image] in clusters]

    def _unpair_between(self, *clusters: int) -> list[Entry]:
        """Return entries that take back that images of some clusters are different."""
        labels = self.clusterer.labels_
        pairs = [pair for pair in self.clusterer.hints_.different if {int(labels[i]) for i in pair} <= set(clusters)]
        return [self._entry("unpair", *pair) for pair in pairs]

    def _same(self, request: Mapping[str, object]) -> tuple[list[Entry], str]:
        images = self._images(request, least=2)
        entries = [self._entry("same", images[0], image) for image in images[1:]]
        return entries, f"{self._say(images)} belong together"

    def _different(self, request: Mapping[str, object]) -> tuple[list[Entry], str]:
        images = self._images(request, least=2)
        if len(images) > MOST_DIFFERENT:
            raise ValueError(f"{len(images)} images are too many to be all different; choose at most {MOST_DIFFERENT}")
        pairs = [(a, b) for place, a in enumerate(images) for b in images[:place]]
        return [self._entry("different", *pair) for pair in pairs], f"{self._say(images)} do not belong together"

    def _split(self, request: Mapping[str, object]) -> tuple[list[Entry], str]:
        cluster = self._cluster(request.get("cluster"))
        return self._plan_split(cluster)[0], f"{self._title(cluster)} split"

    def _plan_split(self, cluster: int) -> tuple[list[Entry], list[Indices]]:
        """Return entries that divide a cluster, and the parts that follow from them.

        The typical images of the two parts are said to be different. If too few images follow, because more was said
        about the cluster, those of the smaller part are moved one by one.
        """
        from tubal.clustering.hints import apply_hints

        first, second = self._parts(cluster)
        evidence, said = self.clusterer._evidence(), set(self.clusterer.hints_.mentioned.tolist())
        free = np.array([i for i in np.unique(self._first[second]) if i not in said], dtype=np.intp)
        entries = [self._entry("unpair", *pair) for pair in self._crossing(first, second)]
        if len(free):
            typical = int(self._first[self._most_typical(first)])
            other = self._most_typical(second, free)
            told = [*entries, self._entry("different", typical, other)]
            with contextlib.suppress(ValueError):  # a contradiction: the images are moved instead
                labels = apply_hints(evidence, self._hints_after(told)).labels
                followed = second[labels[second] == labels[other]]
                is_own = np.isin(np.flatnonzero(labels == labels[other]), [*first, *second]).all()
                if is_own and 2 * len(followed) >= len(second):
                    members = np.concatenate([first, second])
                    follows = labels[members] == labels[other]
                    return told, [np.sort(members[~follows]), np.sort(members[follows])]
        moved = np.unique(self._first[second]).tolist()
        return [*entries, *self._take_back(moved), *self._placed(moved, None, None)], [first, second]

    def _crossing(self, first: Indices, second: Indices) -> list[tuple[int, int]]:
        """Return pairs that are the same, one image in each of two parts."""
        sides = set(first.tolist()), set(second.tolist())
        return [
            (i, j)
            for i, j in self.clusterer.hints_.same
            if (i in sides[0] and j in sides[1]) or (i in sides[1] and j in sides[0])
        ]

    def _parts(self, cluster: int) -> list[Indices]:
        """Return two parts of a cluster; the one with more images that were named comes first, else the larger."""
        members = np.flatnonzero(self.clusterer.labels_ == cluster)
        distinct, place = np.unique(self._first[members], return_inverse=True)
        if len(distinct) < 2:
            raise ValueError(f"{self._title(cluster)} has one image and cannot be split")
        from tubal.clustering.spectral import two_parts

        part = two_parts(self.clusterer._evidence().coordinates[distinct].astype(np.float64), self.clusterer.seed_)
        parts = [members[part[place] == number] for number in np.unique(part)]
        named = np.array(self.clusterer.hints_.images, dtype=np.intp)
        return sorted(parts, key=lambda rows: (-int(np.isin(named, rows).sum()), -len(rows)))

    def _choose_number(self, request: Mapping[str, object]) -> tuple[list[Entry], str]:
        number = request.get("k")
        if number is None:
            return [Entry("clusters", (), "0")], "back to the number of clusters that was found"
        most = self.most_clusters
        if type(number) is not int or not 1 <= number <= most:
            raise ValueError(f"{number!r} is not a number of clusters; choose 1 to {most}")
        if number == getattr(self.clusterer, "n_chosen_", None):
            return [], ""
        return [Entry("clusters", (), str(number))], count(number, "cluster")

    @property
    def most_clusters(self) -> int:
        """Largest number of clusters that can be chosen: three times the number found, at least a hundred."""
        n_found = int(self.clusterer.found_labels_.max()) + 1
        return min(self._n_distinct, max(LEAST_RANGE, 3 * n_found))

    @cached_property
    def _n_distinct(self) -> int:
        """Number of images that are no copies of others; the tree has at least as many pieces, up to a limit."""
        from tubal.clustering.affinity import copy_groups
        from tubal.clustering.tree import MOST_PIECES

        groups = copy_groups(self.clusterer._copies(), self.clusterer._exact_copies())
        return min(int(groups.max()) + 1, MOST_PIECES // 2)

    def warm_up(self) -> list[Callable[[], object]]:
        """Return functions that compute what acts need; another thread may call them, one after the other.

        Returns
        -------
        list of callables
            Their results are kept for this session.
        """
        twin = copy.copy(self.clusterer)  # the other thread must not see a change half done
        for name in ("_evidence_cache", "_tree_cache", "_found_tree_cache"):
            vars(twin)[name] = (self.clusterer.affinity_, self.clusterer._cache_of(name))
        return [twin._evidence, twin._question_tree, twin._found_tree]

    def _keep(self, request: Mapping[str, object]) -> tuple[list[Entry], str]:
        row = self._image(request.get("row"))
        drop = [image for image in self._images(request, "drop", least=0) if image != row]
        dropped = self.dropped
        entries = [self._entry("drop", image) for image in drop if image not in dropped]
        entries += [self._entry("keep", row)] if row in dropped else []
        return entries, f"{self.names[row]} kept, {count(len(drop), 'near-duplicate')} left out"

    def _skip(self, request: Mapping[str, object]) -> tuple[list[Entry], str]:
        image = self._image(request.get("image"))
        return ([] if image in self.skipped else [self._entry("skip", image)]), f"{self.names[image]} skipped"

    # --- moving images -----------------------------------------------------------------------------------
    def _move(self, request: Mapping[str, object]) -> tuple[list[Entry], str]:
        images, target = self._images(request), request.get("to")
        if target in ("out", OUT):
            dropped = self.dropped
            entries = [self._entry("drop", image) for image in images if image not in dropped]
            return entries, f"{self._say(images)} left out"
        if target == "new":
            name = _text(request, "name") if request.get("name") else None
            title, anchor = name or "a new cluster", None
        else:
            cluster = self._cluster(target)
            title, name = self._title(cluster), self.clusterer.names_[cluster]
            anchor = self._anchors(cluster, without=images)[0]
        entries = [*self._back(images), *self._take_back(images), *self._placed(images, name, anchor)]
        return entries, f"{self._say(images)} moved to {title}"

    def _back(self, images: Sequence[int]) -> list[Entry]:
        """Return entries that take images in again that were left out."""
        dropped = self.dropped
        return [self._entry("keep", image) for image in images if image in dropped]

    def _placed(self, images: Sequence[int], name: str | None, anchor: int | None) -> list[Entry]:
        """Return entries that put images, and no others, under a name or to another image; else into a new cluster."""
        if name is not None:
            said = [self._entry("name", image, name=name) for image in images]
        else:
            others = [image for image in images if image != anchor]
            first = anchor if anchor is not None else others.pop(0)
            said = [self._entry("same", image, first) for image in others]
        moved = [image for image in images if image != anchor or name is not None]
        if name is None and anchor is None and len(images) == 1:
            said = self._single(images[0])
        return [*said, *(self._entry("alone", image) for image in moved)]

    def _single(self, image: int) -> list[Entry]:
        """Return an entry that gives an image a cluster of its own: it is not the same as the others of its cluster."""
        anchor = self._anchors(int(self.clusterer.labels_[image]), without=[image])[0]
        if self._first[anchor] == self._first[image]:
            raise ValueError(f"{self.names[image]} is alone in its cluster already")
        return [self._entry("different", image, anchor)]

    def _anchors(self, cluster: int, without: Sequence[int] = ()) -> list[int]:
        """Return images that stand for a cluster: one of each group of hints in it, or its most typical image.

        Images of ``without`` are left out if there are others.
        """
        clusterer, labels = self.clusterer, self.clusterer.labels_
        left_out = {int(self._first[image]) for image in without}
        groups = [group for group in clusterer.hints_.groups() if labels[group.images[0]] == cluster]
        groups.sort(key=lambda group: group.name is None)
        left = [[image for image in group.images if image not in left_out] for group in groups]
        if any(left):
            return [images[0] for images in left if images]
        evidence = clusterer._evidence()
        members = np.flatnonzero(labels == cluster)
        largest = int(np.bincount(evidence.labels[members]).argmax())
        typical = int(self._first[evidence.center(largest, {*clusterer.hints_.alone, *left_out})])
        if labels[typical] == cluster and typical not in left_out:
            return [typical]
        members = np.unique(self._first[members])
        members = members[labels[members] == cluster] if (labels[members] == cluster).any() else members
        others = members[~np.isin(members, list(left_out))]
        return [self._most_typical(others if len(others) else members)]

    def _take_back(self, images: Sequence[int]) -> list[Entry]:
        """Return entries that forget what was said about images, and say it about others of their clusters instead."""
        hints, moving = self.clusterer.hints_, set(images)
        known = set(hints.mentioned.tolist())
        gone = [image for image in images if image in known]
        entries = [self._entry("forget", image) for image in gone]
        # An image that was placed by hand stands for no other.
        other = self._stand_ins(set(gone) - set(hints.alone), moving)
        said = hints.names
        lasting = {text for image, text in said.items() if image not in moving}
        for image in gone:
            name, stand_in = said.get(image), other.get(image)
            if name is not None and stand_in is not None and name not in lasting:
                entries.append(self._entry("name", stand_in, name=name))
        for kind, pairs in (("same", hints.same), ("different", hints.different)):
            for pair in pairs:
                if not moving & set(pair):
                    continue
                first, second = (other.get(image) if image in moving else image for image in pair)
                if first is not None and second is not None and first != second:
                    entries.append(self._entry(kind, first, second))
        return entries

    def _most_typical(self, members: Indices, among: Indices | None = None) -> int:
        from tubal.clustering.quality import most_typical

        evidence = self.clusterer._evidence()
        return most_typical(evidence.coordinates, evidence.affinity, members, among)

    def _stand_ins(self, images: Iterable[int], moving: set[int]) -> dict[int, int | None]:
        """Return for each image the most typical one of its cluster, with and without hints, that is not moved."""
        evidence, labels = self.clusterer._evidence(), self.clusterer.labels_
        base, placed = evidence.labels, moving | set(self.clusterer.hints_.alone)
        free = self._first == np.arange(self.n_images)
        free[list(moving)] = False
        known: dict[tuple[int, int], int | None] = {}
        found = {}
        for image in sorted(images):
            cluster = int(labels[image]), int(base[image])
            if cluster not in known:
                members = np.flatnonzero((labels == cluster[0]) & (base == cluster[1]) & free)
                center: int | None = evidence.center(cluster[1], placed)
                if center not in members:
                    center = self._most_typical(members) if len(members) else None
                known[cluster] = center
            found[image] = known[cluster]
        return found

    # --- requests ----------------------------------------------------------------------------------------
    def _entry(self, kind: str, *images: int, name: str = "") -> Entry:
        files = tuple(self.names[i] for i in images) if kind not in ("alone", "forget") else ()
        return Entry(kind, tuple(self.digests[i] for i in images), name, files)

    def _image(self, value: object) -> int:
        if type(value) is not int or not 0 <= value < self.n_images:
            raise ValueError(f"{value!r} is not an image; the images are 0 to {self.n_images - 1}")
        return value

    def _images(self, request: Mapping[str, object], key: str = "images", *, least: int = 1) -> list[int]:
        given = request.get(key, [])
        if not isinstance(given, list):
            raise ValueError(f"{key} is {type(given).__name__}; a list of images is wanted")
        images = list(dict.fromkeys(self._image(value) for value in given))
        if key == "images" and request.get("to") not in ("out", OUT):
            images = list(dict.fromkeys(int(self._first[image]) for image in images))
        if len(images) < least:
            raise ValueError(f"{count(len(images), 'image')} given; at least {least} wanted")
        return images

    def _cluster(self, value: object) -> int:
        """Return the label of the cluster with a number."""
        numbers: list[int] = self.numbers.tolist()
        if type(value) is not int or value not in numbers:
            raise ValueError(f"there is no cluster {value!r}; it may have changed, look at the page again")
        return numbers.index(value)

    def _title(self, cluster: int) -> str:
        return self.clusterer.names_[cluster] or f"cluster {int(self.numbers[cluster])}"

    def _say(self, images: Sequence[int]) -> str:
        return self.names[images[0]] if len(images) == 1 else count(len(images), "image")


def _text(request: Mapping[str, object], key: str) -> str:
    """Return a name: one line of text that is not empty."""
    value = request.get(key)
    if not isinstance(value, str):
        raise ValueError(f"{key} is {type(value).__name__}; a text is wanted")
    name = " ".join("".join(letter if letter.isprintable() else " " for letter in value).split())
    if not name:
        raise ValueError("the name is empty; write one")
    if len(name) > MOST_LETTERS:
        raise ValueError(f"the name has {len(name)} letters; write at most {MOST_LETTERS}")
    return name
