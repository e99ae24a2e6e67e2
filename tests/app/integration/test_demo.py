import shutil
from typing import Any

import numpy as np
import pytest

from app.bootstrap import Services, build
from app.cli import demo
from app.cli.train import train_and_wait
from app.client import NotFoundError
from app.domain.entities import Content, Modality
from app.domain.names import Scope
from app.domain.reports import TrainingParameters
from app.services.catalogue.preparation import NewItem
from tests.app.closing import close

WORDS = ("waves wind sail", "drops rain umbrella", "sand sun thorn")


def ignore(*_: object) -> None:
    pass


def make_small_sample(services: Services) -> None:
    modalities = [Modality("image", {"type": "vector"}), Modality("text", {"type": "tfidf"})]
    services.catalogue.create(demo.COLLECTION, modalities)
    rng = np.random.default_rng(1)
    for kind, words in enumerate(WORDS):
        chosen = words.split()
        for number in range(8):
            split = "test" if number % 4 == 0 else "train"
            facts: dict[str, Any] = {"labels": (str(kind),), "metadata": {"split": split}}
            facts["train"] = split == "train"
            vector = np.eye(3)[kind] + 0.1 * rng.normal(size=3)
            text = f"{chosen[number % 3]} {chosen[(number + 1) % 3]}"
            items = [
                NewItem("image", Content(vector=vector.tolist()), f"i{kind}-{number}", **facts),
                NewItem("text", Content(text=text), f"t{kind}-{number}", **facts),
            ]
            services.catalogue.add_items(demo.COLLECTION, items)
    train_and_wait(services, demo.COLLECTION, TrainingParameters(alpha=1e-2, scaling="none"), ignore)


@pytest.mark.parametrize("fails", [False, True])
def test_a_check_needs_no_open_search_and_leaves_no_key(pairs: Any, fails: bool) -> None:
    closed = build(pairs.services.settings.model_copy(update={"open_search": False, "host": "0.0.0.0"}))
    kept, _ = closed.access.create(Scope.ADMIN)
    if fails:
        with pytest.raises(NotFoundError):  # there is no collection to check
            demo.evaluate(closed)
    else:
        make_small_sample(closed)
        summary = demo.evaluate(closed)
        assert summary["ready"] is True
        assert summary["admin_without_key"] == 401
        assert [figures["queries"] for figures in summary["test"].values()] == [6, 6]
        assert summary["passed"] is True
    assert [key.id for key in closed.access.list_keys()] == [kept.id]
    close(closed)


@pytest.mark.parametrize(
    ("map_reached", "first_right", "passes"),
    [(1.0, 1.0, True), (0.54, 0.54, True), (0.54, 0.5, False), (0.5, 0.9, False), (0.1, 0.1, False)],
)
def test_good_answers_lie_half_way_from_chance_to_perfect(
    map_reached: float, first_right: float, passes: bool
) -> None:
    figures = {"map": map_reached, "first_right": first_right, "chance": 0.0625}
    assert demo.is_good(figures) is passes


def test_a_check_of_a_service_that_never_gets_ready_does_not_pass(
    pairs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = build(pairs.services.settings)
    make_small_sample(services)
    shutil.rmtree(services.settings.data_dir / "models")
    monkeypatch.setattr(demo, "_READY_SECONDS", 1.0)
    assert demo.evaluate(services) == {"ready": False, "passed": False}
    close(services)
