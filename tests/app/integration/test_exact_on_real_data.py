"""Hits and scores of exact galleries on real sets, compared with a ranking in double precision."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from app.bootstrap import build
from app.domain.entities import Content
from app.domain.searches import SearchResult
from app.services.serving.search import Query, Search, results_of
from app.services.serving.snapshot import Snapshot
from app.settings import Settings
from solver.datasets import PairedFeatures, SyntheticPairs, load_npz
from tests.app.closing import close
from tests.app.integration.conftest import FINE, Pairs
from tests.app.integration.searching import find

pytestmark = [
    pytest.mark.data,
    pytest.mark.filterwarnings("ignore::solver.validation.ConvergenceWarning"),
]
K = 50
_TOGETHER = 8
Vectors = npt.NDArray[np.float64]


@pytest.fixture(params=["audio_digits", "wikipedia", "wikipedia_cnn"])
def served(
    request: pytest.FixtureRequest, test_data: Path, tmp_path: Path, copy_migrated: Callable[[Path], None]
) -> Iterator[tuple[Pairs, PairedFeatures]]:
    """Services over all of x in a real set, trained on a quarter of its training split: any model will do."""
    data = load_npz(test_data / request.param / f"{request.param}.npz")
    copy_migrated(tmp_path)
    unused = np.zeros(0, np.intp)
    pairs = Pairs(
        build(Settings(data_dir=tmp_path, database_url="")),
        SyntheticPairs(data.X, data.Z, unused, unused, np.zeros((0, 0))),
    )
    pairs.make("a")
    learned = [bool(is_train) and number % 4 == 0 for number, is_train in enumerate(data.is_train)]
    for side, rows in (("x", data.X), ("z", data.Z)):
        items = [
            pairs.item(side, f"{side}{number:04d}", row, str(data.labels[number]), train=learns)
            for number, (row, learns) in enumerate(zip(rows, learned, strict=True))
            if side == "x" or learns
        ]
        for start in range(0, len(items), 500):
            pairs.services.catalogue.add_items("a", items[start : start + 500])
    version = pairs.train("a", FINE)
    assert pairs.services.versions.model("a", version).report.fit.rank > 1, "the order says something"
    yield pairs, data
    close(pairs.services)


def check(result: SearchResult, places: dict[str, int], rows: Vectors, query: Vectors) -> bool:
    """Check scores, and that no better item is missing; return whether rounding cannot change the order."""
    scores = rows @ query
    # Of a sum in single precision (Higham 2002, section 3.1), and of the comparison of two such sums.
    gamma = len(query) * 2.0**-24 / (1.0 - len(query) * 2.0**-24)
    error = gamma * float(np.linalg.norm(rows, axis=1).max() * np.linalg.norm(query))
    order = np.argsort(-scores, kind="stable")[: K + 1]
    assert result.exact
    found = [places[hit.id] for hit in result.hits]
    assert len(found) == K
    assert np.abs([hit.score for hit in result.hits] - scores[found]).max() <= error
    assert scores[found].min() >= scores[order[K - 1]] - 2.0 * error
    gaps = -np.diff(scores[order])
    is_clear = bool(((gaps > 2.0 * error) | (gaps == 0.0)).all())
    if is_clear:
        assert found == order[:K].tolist()
    return is_clear


def gallery_of(snapshot: Snapshot) -> tuple[dict[str, int], Vectors]:
    """Return the rows of x in the order of their ids, and the place of each."""
    (view,) = snapshot.galleries["x"].segments
    ids = [item.id for item in view.live_items()]
    order = sorted(range(len(ids)), key=ids.__getitem__)
    places = {ids[row]: place for place, row in enumerate(order)}
    return places, view.live_vectors()[order].astype(np.float64)


def test_exact_galleries_answer_as_double_precision_does(served: tuple[Pairs, PairedFeatures]) -> None:
    pairs, data = served
    queries = [Query(Content(vector=row.tolist())) for row in data.Z[~data.is_train][:200]]
    results = find(pairs.services, "a", "z", "x", queries, K)
    (snapshot,) = pairs.services.snapshots.peek_all().values()
    places, rows = gallery_of(snapshot)
    projected = [snapshot.model.project("z", row[None]) for row in data.Z[~data.is_train][:200]]
    is_clear = [
        check(result, places, rows, query[0].astype(np.float64))
        for result, query in zip(results, projected, strict=True)
    ]
    assert np.mean(is_clear) > 0.5, "the order itself is compared, too"
    for start in range(0, len(queries), _TOGETHER):
        searches = [Search([query], K) for query in queries[start:][:_TOGETHER]]
        together = pairs.services.search.search("a", "z", "x", searches)
        for alone, outcome in zip(results[start:], together, strict=False):
            (answer,) = results_of(outcome)
            assert [(hit.id, hit.score) for hit in answer.hits] == [(hit.id, hit.score) for hit in alone.hits]
