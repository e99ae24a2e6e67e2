import threading
from typing import Any

import faiss
import numpy as np
import pytest

from app.domain.entities import JobState
from app.domain.errors import InvalidFieldError
from app.index.exact import ExactIndex
from app.services.training import TrainingParameters

HUGE = (3e38, -3e38)


@pytest.mark.parametrize("value", [*HUGE, 1e13, float("inf"), float("nan")])
def test_a_number_that_would_overflow_is_refused_by_name(pairs: Any, value: float) -> None:
    pairs.fill("a")
    pairs.train("a")
    before, _ = pairs.services.catalogue.collection("a")
    good, bad = pairs.item("x", "good", [1.0] * 8), pairs.item("x", "big", [value] + [0.0] * 7)
    with pytest.raises(InvalidFieldError) as refused:
        pairs.services.catalogue.add_items("a", [good, bad])
    assert refused.value.field.startswith("items.1")
    with pytest.raises(InvalidFieldError, match="vector"):
        pairs.search("a", row=[value] * 6)
    assert pairs.services.catalogue.collection("a")[0] == before
    assert len(pairs.ids("a")) == 60


@pytest.mark.parametrize("scaling", [None, "none", "center", "standard", "l2"])
def test_the_largest_numbers_allowed_disturb_nothing(pairs: Any, scaling: str | None) -> None:
    pairs.fill("a")
    pairs.train("a")
    largest = [1e12, -1e12] * 4
    pairs.services.catalogue.add_items("a", [pairs.item("x", "big", largest, "class 0")])
    result = pairs.search("a")
    assert len({hit.id for hit in result.hits}) == 61
    assert np.isfinite([hit.score for hit in result.hits]).all()
    assert np.isfinite([hit.score for hit in pairs.search("a", row=[1e12, -1e12] * 3).hits]).all()
    job = pairs.try_to_train("a", TrainingParameters(alpha=1e-3, scaling=scaling, max_iter=3))
    assert job.state is JobState.SUCCEEDED, job.error
    assert len(set(pairs.ids("a"))) == 61


def test_what_a_model_cannot_place_is_left_out_and_refused(pairs: Any) -> None:
    pairs.make("a")
    rng = np.random.default_rng(0)
    for side in "xz":
        # A feature that hardly varies: scaled to unit variance, a usual value is beyond all measure.
        rows = np.column_stack([rng.normal(size=24), 1e-12 * rng.normal(size=24)])
        rows[:, 0] += np.arange(24) % 2
        items = [pairs.item(side, f"{side}{n:02d}", row, str(n % 2)) for n, row in enumerate(rows)]
        pairs.services.catalogue.add_items("a", items)
    pairs.train("a", TrainingParameters(alpha=1e-4, scaling="standard", max_iter=20))
    assert len(pairs.search("a", row=[1.0, 0.0]).hits) == 24
    pairs.services.catalogue.add_items("a", [pairs.item("x", "far", [0.0, 1e12])])
    hits = pairs.search("a", row=[1.0, 0.0]).hits
    assert "far" not in [hit.id for hit in hits]
    assert len({hit.id for hit in hits}) == 24
    with pytest.raises(InvalidFieldError, match="too far"):
        pairs.search("a", row=[0.0, 1e12])
    pairs.services.catalogue.add_items("a", [pairs.item("x", "far", [1.0, 0.0])], replace=True)
    assert len(pairs.search("a", row=[1.0, 0.0]).hits) == 25


def test_rows_that_faiss_does_not_know_are_no_results() -> None:
    vectors = np.ones((4, 2), np.float32)
    vectors[1] = np.nan
    ((rows, _),) = ExactIndex(vectors).search(np.ones((1, 2), np.float32), 4, None)
    assert set(rows.tolist()) <= {0, 2, 3}


def test_a_query_takes_one_thread_of_openmp_in_any_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    index = ExactIndex(np.eye(3, dtype=np.float32))
    seen: list[int] = []
    search_one = ExactIndex._search_one

    def watched(self: ExactIndex, *arguments: Any) -> Any:
        seen.append(faiss.omp_get_max_threads())
        return search_one(self, *arguments)

    monkeypatch.setattr(ExactIndex, "_search_one", watched)

    def search() -> None:
        faiss.omp_set_num_threads(4)
        index.search(np.eye(3, dtype=np.float32), 1, None)
        seen.append(faiss.omp_get_max_threads())

    thread = threading.Thread(target=search)
    thread.start()
    thread.join()
    assert seen == [1, 1, 1, 4]
