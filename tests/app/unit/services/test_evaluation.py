"""What a new version is compared with before it serves, and which method is kept."""

import re
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

from app.domain.reports import IndexRecall
from app.services.models.model_bundles import HeldOutModel
from app.services.training.data import LabelledItems, as_values
from app.services.training.evaluation import is_better
from app.services.training.gate import compare_with_untrained, refusal_of
from app.services.training.methods import select_and_fit
from app.services.training.requests import TrainingParameters
from solver import CompositeBilinear, untrained_projector
from solver.comparison import bootstrap_interval, sums_of_partners

N, N_KINDS = 160, 4
NAMES = ("image", "text")


def pairs(seed: int, noise: float, n: int = N) -> LabelledItems:
    """Return pictures that show their kind under noise, and texts of which one word in two names it."""
    rng = np.random.default_rng(seed)
    kinds = np.arange(n) % N_KINDS
    pictures = (np.eye(N_KINDS)[kinds] + noise * rng.standard_normal((n, N_KINDS))).astype(np.float32)
    texts = np.zeros((n, 40), np.float32)
    texts[np.arange(n), kinds] = 1.0
    texts[np.arange(n), rng.integers(N_KINDS, 40, n)] = 1.0
    ids = np.char.add("n", np.arange(n).astype(np.str_))
    kinds_of = as_values([(f"kind {kind}",) for kind in kinds])
    blank = np.full(n, "")
    facets = {"kind": (kinds_of, kinds_of)}
    return LabelledItems(
        pictures, texts, blank, blank, np.char.add("x", ids), np.char.add("z", ids), facets, (ids, ids)
    )


@pytest.mark.parametrize("learns", [True, False])
def test_a_version_that_finds_less_than_no_training_is_refused(learns: bool) -> None:
    data = pairs(0, 0.5)
    shuffled = data.take(np.arange(N), np.random.default_rng(0).permutation(N))
    of_kind = (data if learns else shuffled).annotations()
    model = CompositeBilinear().fit(data.X, data.Z, of_kind, with_content=(False, learns))
    judged = HeldOutModel(model.projector_, frozenset())
    gate = compare_with_untrained(judged, pairs(2, 0.5), NAMES, 0.02)
    assert gate is not None
    assert gate.items == {"image": N, "text": N}
    assert gate.interval is not None
    assert gate.new_value is not None
    assert gate.active_value is not None
    assert gate.interval[0] < gate.new_value - gate.active_value < gate.interval[1]
    refusal = refusal_of(gate, IndexRecall({}, 0.0))
    assert (refusal is None) == learns
    if not learns:
        assert "version 0" in (refusal or "")


def test_sparse_features_of_no_encoder_are_compared_with_no_training() -> None:
    data = pairs(0, 0.5)
    model = CompositeBilinear().fit(data.X, data.Z, data.annotations(), with_content=(False, True))
    judged, held_out = HeldOutModel(model.projector_, frozenset()), pairs(2, 0.5)
    dense = compare_with_untrained(judged, held_out, NAMES, 0.02)
    rows = scipy.sparse.csr_array(held_out.X), scipy.sparse.csr_array(held_out.Z)
    assert compare_with_untrained(judged, replace(held_out, X=rows[0], Z=rows[1]), NAMES, 0.02) == dense


def test_the_gate_compares_items_as_people_find_them_and_draws_both_queries_of_a_pair_together() -> None:
    data, held_out = pairs(0, 1.0), pairs(2, 1.0)
    held_out.Z[: N // 2, :N_KINDS] = 0.0  # they do not name their kind
    fitted = CompositeBilinear().fit(data.X, data.Z, data.annotations(), with_content=(False, True))
    gate = compare_with_untrained(HeldOutModel(fitted.projector_, frozenset()), held_out, NAMES, 0.02)
    annotations = held_out.annotations()
    after, by_partners, before = (
        projector.held_out(
            (projector.project_x(held_out.X), projector.project_z(held_out.Z)), annotations
        ).rankings(projector.x.partner_share, with_values=with_values)
        for projector, with_values in (
            (fitted.projector_, True),
            (fitted.projector_, False),
            (untrained_projector(held_out.X, held_out.Z), True),
        )
    )
    assert gate is not None
    assert gate.new_value == pytest.approx(np.mean([one.gain() for one in after]))
    assert gate.new_value > np.mean([one.gain() for one in by_partners]) + 0.01
    of_z, of_x = ((new.gains() - old.gains()) / (2 * N) for new, old in zip(after, before, strict=True))
    assert np.sort(sums_of_partners((of_x, of_z), annotations)) == pytest.approx(np.sort(of_x + of_z))
    assert gate.interval == pytest.approx(bootstrap_interval(N * (of_x + of_z)))


def test_nothing_is_compared_with_no_training_where_few_items_were_held_out() -> None:
    data = pairs(0, 0.5)
    model = CompositeBilinear().fit(data.X, data.Z, data.annotations())
    judged, rows = HeldOutModel(model.projector_, frozenset()), np.arange(7)
    assert compare_with_untrained(judged, data.take(rows, rows), NAMES, 0.02) is None
    assert compare_with_untrained(None, data, NAMES, 0.02) is None


def test_a_projector_of_more_items_is_better_and_none_is_better_than_itself() -> None:
    data = pairs(0, 0.5)
    whole, part = (
        CompositeBilinear().fit(side.X, side.Z, side.annotations()).projector_
        for side in (data, data.take(np.arange(12), np.arange(12)))
    )
    held_out = pairs(3, 0.5)
    assert is_better(whole, part, held_out, "ndcg")
    assert not is_better(part, whole, held_out, "ndcg")
    assert not is_better(whole, whole, held_out, "ndcg")


@pytest.mark.parametrize(("seed", "noise", "kept"), [(4, 3.0, True), (2, 3.0, False)])
def test_a_method_of_content_alone_is_taken_only_where_it_is_better_beyond_chance(
    seed: int, noise: float, kept: bool
) -> None:
    rows, kinds = np.arange(40), np.char.add("kind ", (np.arange(N) % N_KINDS).astype(np.str_))
    data = replace(pairs(seed, noise), x_labels=kinds, z_labels=kinds).take(rows, rows)
    learned = select_and_fit(data, TrainingParameters(), NAMES, lambda _: None)
    values = learned.selection.values
    assert values["lrbs"] > values["composite"]
    assert learned.method == ("composite" if kept else "lrbs")
    assert ("not better beyond chance" in learned.selection.refused.get("lrbs", "")) == kept


def test_held_out_figures_say_of_how_large_a_gallery_they_are_and_what_more_items_would_bring() -> None:
    data = pairs(0, 1.0, 260)
    quality = select_and_fit(data, TrainingParameters(), NAMES, lambda _: None).held_out_quality
    assert quality.items == {"image": 52, "text": 52}
    for direction in quality.directions.values():
        assert direction.served is not None
        assert direction.served.n_gallery == 260
        assert (direction.served.recall_at_10 or 0.0) < (direction.recall_at_10 or 0.0) - 0.1
    assert re.fullmatch(
        r"training has brought nDCG@10 from 0\.\d\d to 0\.\d\d as people find items; 260 more of image and "
        r"260 more of text would bring (about \+0\.\d\d|little) by content alone, among all items",
        quality.progress or "",
    )
    rows = np.arange(N)
    few = select_and_fit(data.take(rows, rows), TrainingParameters(), NAMES, lambda _: None).held_out_quality
    assert re.fullmatch(
        r"training has brought nDCG@10 from \S+ to \S+ as people find items", few.progress or ""
    )


def test_so_few_held_out_items_have_no_figures() -> None:
    rows = np.arange(24)
    quality = select_and_fit(
        pairs(0, 1.0).take(rows, rows), TrainingParameters(), NAMES, lambda _: None
    ).held_out_quality
    assert (quality.directions, quality.reliability, quality.progress) == ({}, None, None)
    assert quality.caution == "too few items are held out for figures, 5 of image and 5 of text"
