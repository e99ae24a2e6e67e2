import re
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from app.cli.commands import convergence_line, validation_lines
from app.cli.console import EVERY_SECONDS, progress
from app.domain.errors import InvalidFieldError
from app.domain.names import Scope
from app.domain.reports import TrainingParameters
from tests.app.refused import refused


@pytest.mark.filterwarnings("error")
def test_a_fit_that_did_not_converge_is_a_fact_and_a_sentence(pairs: Any) -> None:
    pairs.fill("a")
    short = pairs.train("a", TrainingParameters(alpha=1e-3, scaling="standard", max_iter=1, tol=1e-6))
    report = pairs.services.versions.model("a", short).report
    assert report.fit.convergence.converged is False
    assert report.fit.convergence.gap > report.fit.convergence.tol == 1e-6
    said = convergence_line(report.to_answer(is_whole=True))
    assert said is not None
    assert "after 1 iterations" in said
    full = pairs.services.versions.model("a", pairs.train("a", TrainingParameters(alpha=1e-3))).report
    assert full.fit.convergence.converged is True
    assert convergence_line(full.to_answer(is_whole=True)) is None


def test_validation_figures_say_what_they_rest_on(pairs: Any) -> None:
    pairs.fill("a")
    report = pairs.services.versions.model("a", pairs.train("a")).report
    assert report.held_out.items == {"x": 12, "z": 9}
    lines = validation_lines(report.to_answer(is_whole=True))
    assert len(lines) == 2
    assert all("validation MAP" in line and "12 x and 9 z items held out" in line for line in lines)
    of_older_version = replace(report, held_out=replace(report.held_out, items={})).to_answer(is_whole=True)
    assert all("on unknown items" in line for line in validation_lines(of_older_version))


def test_chance_is_that_of_the_held_out_items_not_of_the_number_of_classes(pairs: Any) -> None:
    pairs.make("a")
    labels = ["common"] * 40 + ["rare"] * 10  # a fifth of each class is held out: 8 and 2
    for side, rows in (("x", pairs.data.X), ("z", pairs.data.Z)):
        items = [pairs.item(side, f"{side}{n}", rows[n % len(rows)], label) for n, label in enumerate(labels)]
        pairs.services.catalogue.add_items("a", items)
    report = pairs.services.versions.model("a", pairs.train("a")).report
    assert report.held_out.items == {"x": 10, "z": 10}
    directions = report.held_out.directions
    chance = {name: quality.chance for name, quality in directions.items()}
    assert chance == pytest.approx({"x-to-z": 0.68, "z-to-x": 0.68})  # (8 * 0.8 + 2 * 0.2) / 10
    assert all("(chance 0.6800)" in line for line in validation_lines(report.to_answer(is_whole=True)))
    without = {name: replace(quality, chance=None) for name, quality in directions.items()}
    of_older_version = replace(report, held_out=replace(report.held_out, directions=without)).to_answer(
        is_whole=True
    )
    assert not any("chance" in line for line in validation_lines(of_older_version))


def test_items_kept_out_of_training_do_not_count(pairs: Any) -> None:
    pairs.make("a")
    for side in "xz":
        items = [pairs.item(side, f"{side}{n}", [1.0, 2.0], "ab"[n % 2], train=side == "x") for n in range(6)]
        pairs.services.catalogue.add_items("a", items)
    with refused("training-data", match="modality 'z'"):
        pairs.services.training.request("a", TrainingParameters())


def test_a_key_can_take_the_place_of_those_of_its_name(pairs: Any) -> None:
    access = pairs.services.access
    kept, _ = access.create(Scope.WRITE, "other")
    first, _ = access.create(Scope.ADMIN, "demo")
    second, secret = access.create(Scope.ADMIN, "demo", replace=True)
    assert {key.id for key in access.list_keys()} == {kept.id, second.id}
    access.require(secret, Scope.ADMIN)
    with refused("key-not-found"):
        access.revoke(first.id)
    for name in ("", "a" * 65, "a\x00"):
        with pytest.raises(InvalidFieldError, match="name"):
            access.create(Scope.ADMIN, name)


def test_plain_progress_tells_each_step_and_now_and_then_how_far(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("app.cli.console.time.monotonic", lambda: now)
    console = Console(force_terminal=False, soft_wrap=True)
    with console.capture() as captured, progress(console, "Does something [long]: a minute.") as show:
        for step in range(1, 11):
            now = step * EVERY_SECONDS / 2
            show("one" if step < 6 else "two", step, 100 if step == 8 else 0, "gap 1" if step == 10 else "")
    lines = [re.sub(r"\s+", " ", line).strip() for line in captured.get().splitlines()]
    assert lines == [
        "Does something [long]: a minute.",
        "2 s one 1",
        "8 s one 3",
        "12 s one 5",
        "15 s two 6",
        "20 s two 8 %",
        "25 s two 10, gap 1",
        "done in 25 s",
    ]
