import pytest

from solver.datasets import SyntheticPairs
from tests.solver.every_estimator import make_pairs


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a fifth as many samples be a block of pairs, so that 900 of either modality are a large problem."""
    monkeypatch.setattr("solver.optimisation.subsample._BLOCK_SAMPLES", 600)


@pytest.fixture
def pairs() -> SyntheticPairs:
    return make_pairs()
