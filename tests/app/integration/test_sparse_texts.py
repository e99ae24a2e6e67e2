import tracemalloc

import numpy as np
import pytest

from app.domain.entities import Content, Modality
from app.domain.errors import InvalidFieldError
from app.domain.filters import ItemFilter
from app.services.catalogue.service import NewItem
from app.services.serving.search import Query
from app.services.training.requests import TrainingParameters
from tests.app.integration.conftest import Pairs
from tests.app.integration.searching import find

TERMS, N_TEXTS = 30_000, 300
DENSE_BYTES = 4 * N_TEXTS * TERMS


def texts(n_texts: int, seed: int) -> list[NewItem]:
    """Texts of 100 words each, of which most stand in one text alone."""
    rng = np.random.default_rng(seed)
    items = []
    for number in range(n_texts):
        label = number % 3
        common, rare = label * 30 + rng.integers(30, size=20), rng.integers(90, 50_000, size=80)
        words = " ".join(f"w{word}" for word in [*common, *rare])
        items.append(NewItem("text", Content(text=words), f"t{seed}-{number}", (str(label),)))
    return items


def test_a_replay_of_texts_with_very_many_terms_never_makes_them_dense(pairs: Pairs) -> None:
    catalogue, rng = pairs.services.catalogue, np.random.default_rng(0)
    encoder = {"type": "tfidf", "max_features": TERMS}
    catalogue.create("a", [Modality("x", {"type": "vector"}), Modality("text", encoder)])
    rows = rng.normal(size=(60, 6)) + 3.0 * np.eye(6)[np.arange(60) % 3]
    vectors = [pairs.item("x", f"x{n}", row, str(n % 3)) for n, row in enumerate(rows)]
    catalogue.add_items("a", [*vectors, *texts(N_TEXTS, 0)])

    def by_vector() -> list[str]:
        query = [Query(Content(vector=rows[0].tolist()))]
        (found,) = find(pairs.services, "a", "x", "text", query, 1000, 0, ItemFilter())
        return [hit.id for hit in found.hits]

    pairs.train("a", TrainingParameters(alpha=1e-4, scaling="center", max_iter=10))
    by_vector()
    catalogue.add_items("a", texts(N_TEXTS, 1))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        found = by_vector()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < DENSE_BYTES / 3
    assert len(found) == 2 * N_TEXTS
    first = [int(item_id.partition("-")[2]) % 3 == 0 for item_id in found[:100]]
    assert np.mean(first) > 0.8


def test_a_new_collection_may_not_ask_for_any_number_of_terms(pairs: Pairs) -> None:
    modalities = [
        Modality("x", {"type": "vector"}),
        Modality("text", {"type": "tfidf", "max_features": 200_001}),
    ]
    with pytest.raises(InvalidFieldError) as refused:
        pairs.services.catalogue.create("a", modalities)
    assert refused.value.field == "modalities.text.encoder.max_features"
