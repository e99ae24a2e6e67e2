"""Which model answers a search, and what its report says."""

from dataclasses import replace

import numpy as np
import pytest

from app.bootstrap import Services, build
from app.cli.commands import label_lines
from app.domain.entities import JobState, Modality
from app.domain.errors import DamagedBundleError
from app.domain.reports import TrainingParameters
from solver.artifacts import load_projector
from solver.datasets import SyntheticPairs
from tests.app.closing import close
from tests.app.integration.in_process import run_here, run_one
from tests.app.integration.loading import load
from tests.app.integration.searching import NAME, PARAMETERS, bundle_of, ids, search, train, vector_item
from tests.app.refused import refused

N_X, N_Z = 60, 50


def test_items_not_to_learn_from_are_found(trained: Services, vectors: SyntheticPairs) -> None:
    before, _ = load_projector(bundle_of(trained))
    items = [vector_item("x", f"held{n}", 50.0 + vectors.X[n], "strange", train=False) for n in range(5)]
    trained.catalogue.add_items(NAME, items)
    assert train(trained) == 2
    data = trained.versions.models(NAME)[0].report.data
    assert data.items == {"x": N_X, "z": N_Z}
    assert "strange" not in data.classes
    after, _ = load_projector(bundle_of(trained))
    for name, values in before.arrays().items():
        np.testing.assert_allclose(after.arrays()[name], values, rtol=1e-4, atol=1e-5)
    result = search(trained, vectors.Z[0], 100)
    assert result.model_version == 2
    assert {f"held{n}" for n in range(5)} <= set(ids(result))


def test_labels_of_one_modality_alone_are_reported(trained: Services, vectors: SyntheticPairs) -> None:
    assert trained.versions.models(NAME)[0].report.data.unmatched_labels == {"x": (), "z": ()}
    trained.catalogue.add_items(
        NAME, [vector_item("x", f"odd{n}", vectors.X[n], "Strange") for n in range(3)]
    )
    trained.catalogue.add_items(
        NAME, [vector_item("z", f"odd-z{n}", vectors.Z[n], "strange") for n in range(3)]
    )
    train(trained)
    report = trained.versions.models(NAME)[0].report
    assert report.data.unmatched_labels == {"x": ("Strange",), "z": ("strange",)}
    assert label_lines(report.to_answer(is_whole=True)) == [
        "no training item of the other modality is of these classes of 'x': 'Strange'",
        "no training item of the other modality is of these classes of 'z': 'strange'",
    ]


def test_a_penalty_that_leaves_nothing_still_answers(trained: Services, vectors: SyntheticPairs) -> None:
    trained.versions.activate(NAME, train(trained, TrainingParameters(alpha=1e5, scaling="standard")), "test")
    result = search(trained, vectors.Z[0], 5)
    assert [hit.score for hit in result.hits] == [0.0] * 5
    assert ids(result) == [f"x{n:02d}" for n in range(5)]
    trained.catalogue.add_items(NAME, [vector_item("x", "a", vectors.X[0])])
    assert ids(search(trained, vectors.Z[0], 1)) == ["a"]


def test_a_damaged_bundle_is_not_served(trained: Services, vectors: SyntheticPairs) -> None:
    # No search reads the held-out model: see test_faults_of_storage.
    files = [
        path for path in bundle_of(trained).rglob("*") if path.is_file() and path.parent.name != "judged"
    ]
    for path in sorted(files):  # of each kind of damage: see ports/test_bundles
        content = path.read_bytes()
        path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
        fresh = build(trained.settings)
        with pytest.raises(DamagedBundleError):
            search(fresh, vectors.Z[0])
        with refused("damaged-version"):
            fresh.versions.activate(NAME, 1, "test")
        assert "bundle" in (load(fresh).reason or "")
        close(fresh)
        path.write_bytes(content)
    fresh = build(trained.settings)
    assert ids(search(fresh, vectors.Z[0])) == ids(search(trained, vectors.Z[0]))
    close(fresh)


def test_an_untrained_collection_says_what_it_has_and_what_a_training_needs(services: Services) -> None:
    services.catalogue.create(NAME, [Modality("x", {"type": "vector"}), Modality("z", {"type": "vector"})])

    def said() -> str:
        with refused("model-not-trained") as untrained:
            search(services, [1.0])
        return str(untrained.value)

    assert "no item of 'x' or 'z'" in said()
    assert "4 pairs (the same pair_id on two items)" in said()
    items = [
        vector_item(side, f"{side}{n}", row)
        for n in range(4)
        for side, row in (("x", [1.0, float(n)]), ("z", [1.0]))
    ]
    services.catalogue.add_items(NAME, items)
    assert "nothing connects 'x' and 'z'" in said()
    assert "4 items of 'x', 0 labelled and 4 items of 'z', 0 labelled" in said()
    assert "no item has a text, so there are no words to search by" in said()
    assert "a training needs one of these" in said()
    described = [replace(item, metadata={"colour": "ab"[int(item.id[1:]) % 2]}) for item in items]
    services.catalogue.add_items(NAME, described, replace=True)
    assert "values of the metadata 'colour'; that suffices" in said()


def test_a_training_that_cannot_be_is_reported(services: Services, caplog: pytest.LogCaptureFixture) -> None:
    services.catalogue.create(NAME, [Modality("x", {"type": "vector"}), Modality("z", {"type": "vector"})])
    items = [
        vector_item(side, f"{side}{n}", row, "ab"[n // 2])
        for side, row in (("x", [1.0]), ("z", [1.0, 2.0]))
        for n in range(4)
    ]
    services.catalogue.add_items(NAME, items)
    services.training.request(NAME, PARAMETERS)
    # The request was valid; the data are not any more.
    services.catalogue.add_items(NAME, [replace(item, labels=()) for item in items], replace=True)
    with caplog.at_level("INFO", "app.worker"):
        job = run_here(services)
    assert job.state is JobState.FAILED
    assert "label" in (job.error or "")
    (line,) = [record.getMessage() for record in caplog.records if "failed" in record.getMessage()]
    assert line == f"job {job.id}: retraining {NAME} failed: {job.error}"
    with refused("model-not-trained") as untrained:
        search(services, [1.0])
    assert (job.error or "") in str(untrained.value)
    assert services.catalogue.collection(NAME)[0].active_version is None
    assert run_one(services) is None
