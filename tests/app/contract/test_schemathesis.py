"""All checks of schemathesis, against a real server; a deep run is ``python -m tests.app.contract.run``."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.domain.names import Scope
from tests.app.contract.gallery import Gallery, served
from tests.app.contract.run import run_schemathesis

SEED, EXAMPLES = 7, 2


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gallery]:
    with served(tmp_path_factory.mktemp("contract") / "data", "--no-worker") as gallery:
        yield gallery


def test_the_service_keeps_its_contract_with_an_admin_key(gallery: Gallery, tmp_path: Path) -> None:
    outcome = run_schemathesis(gallery, tmp_path, EXAMPLES, SEED, Scope.ADMIN)
    assert outcome.passed, outcome.said
    tally = outcome.tally()
    assert tally["cases"] > 1000
    # Most of what the document allows is really accepted: the checks see more than refusals.
    assert tally["valid_accepted"] > 2 * tally["valid_refused"]


@pytest.mark.parametrize("scope", [None, Scope.SEARCH], ids=["no key", "search key"])
def test_the_service_keeps_its_contract_with_less(
    gallery: Gallery, tmp_path: Path, scope: Scope | None
) -> None:
    outcome = run_schemathesis(gallery, tmp_path, EXAMPLES, SEED, scope, "examples,fuzzing")
    assert outcome.passed, outcome.said
