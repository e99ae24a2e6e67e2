import logging
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.bootstrap import build
from app.domain.entities import BuiltModel
from app.services.training.requests import TrainingParameters
from app.worker.attempts import Failure, attempt
from solver import DaskEngine
from tests.app.closing import close

PARAMETERS = TrainingParameters(method="lrbs", alpha=1e-3, scaling="standard", max_iter=20)


def _files(folder: Path) -> dict[str, bytes]:
    """Return what a bundle serves with; its report and manifest tell times."""
    return {
        str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*.safetensors"))
    }


def test_a_training_on_dask_workers_has_the_bytes_of_a_local_one(
    pairs: Any, distributed: Any, caplog: pytest.LogCaptureFixture
) -> None:
    pairs.fill("a")
    changes = {"training_engine": "dask", "dask_from_pairs": 0}
    remote = build(pairs.services.settings.model_copy(update=changes))
    blocks, written = pairs.services.settings.data_dir / "blocks", set[str]()

    def look(_: object) -> None:
        written.update(folder.name for folder in blocks.glob("*"))

    with caplog.at_level(logging.INFO, "app"):
        bundles = [services.builder.build("a", PARAMETERS, look) for services in (pairs.services, remote)]
    folders = [next(pairs.services.settings.data_dir.rglob(built.bundle)) for built in bundles]
    local, far = map(_files, folders)
    assert local != {}
    assert far == local
    assert len(written) >= 2  # samples in both precisions, and not where temporary files are
    assert list(blocks.iterdir()) == []
    announced = [message for message in caplog.messages if message.startswith("training on Dask: ")]
    assert len(announced) == 2  # without the held-out items, and on all
    assert all("MB of traffic" in message for message in announced)
    close(remote)


def test_a_training_whose_scheduler_is_away_may_be_tried_again(
    pairs: Any, distributed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs.fill("a")
    builder = pairs.services.builder
    engine = partial(DaskEngine, "tcp://127.0.0.1:9", least_pairs=0, patience_seconds=0.1)
    monkeypatch.setattr(builder, "_engine", engine)
    outcome = attempt(builder, "a", asdict(PARAMETERS), lambda _: None)
    assert isinstance(outcome, Failure)
    assert not isinstance(outcome, BuiltModel)
    assert outcome.may_pass
    assert "no Dask scheduler with a worker at tcp://127.0.0.1:9" in outcome.reason
