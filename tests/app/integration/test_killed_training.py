"""Trainings whose process is killed or that Dask workers evaluate, and the process of a trainer."""

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import pytest

from app.bootstrap import Services, build, sweep_checkpoints
from app.domain.entities import BuiltModel
from app.services.training.requests import TrainingParameters
from app.worker.attempts import Failure, attempt
from solver import DaskEngine
from tests.app.closing import close
from tests.conftest import ROOT

PARAMETERS = TrainingParameters(method="lrbs", alpha=1e-3, scaling="standard", max_iter=20, tol=1e-9)
KILL_AT = 12
SCRIPT = """
import json, os, signal, sys
from app.bootstrap import build
from app.settings import Settings
from app.worker.attempts import attempt

def die(progress):
    if progress["phase"] == "fitting" and progress["iteration"] == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

attempt(build(Settings(**json.loads(sys.argv[1]))).builder, "a", json.loads(sys.argv[2]), die)
"""


def _train_and_die(services: Services) -> None:
    """Make an attempt in a process that is killed during the fit."""
    settings = json.dumps(services.settings.model_dump(mode="json"))
    command = [sys.executable, "-c", SCRIPT, settings, json.dumps(asdict(PARAMETERS)), str(KILL_AT)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    died = subprocess.run(command, env=environment, cwd=ROOT, timeout=60)
    assert died.returncode == -signal.SIGKILL


def _train(services: Services, parameters: TrainingParameters) -> tuple[BuiltModel, list[int]]:
    """Train, and return the model with the iterations of the fit that were reported."""
    iterations: list[int] = []

    def follow(progress: Any) -> None:
        if progress["phase"] == "fitting":
            iterations.append(progress["iteration"])

    built = attempt(services.builder, "a", asdict(parameters), follow)
    assert isinstance(built, BuiltModel), built
    return built, iterations


def _facts(services: Services, built: BuiltModel) -> tuple[dict[str, bytes], Any]:
    """Return what a bundle serves with, and what the report says of the fit but for times."""
    folder = next(services.settings.data_dir.rglob(built.bundle))
    files = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*.safetensors")}
    fit = built.report.fit
    assert fit.convergence is not None
    steps = [replace(step, seconds=0.0) for step in fit.history]
    return files, (fit.alpha, fit.singular_values, replace(fit.convergence, seconds=0.0), steps)


def test_a_training_that_was_killed_goes_on_when_it_is_tried_again(pairs: Any) -> None:
    pairs.fill("a")
    services, folder = pairs.services, pairs.services.settings.data_dir / "checkpoints"
    whole, iterations = _train(services, PARAMETERS)
    assert iterations[-1] > KILL_AT
    assert not folder.exists()  # it took less than the pause before the first one

    services.settings.checkpoint_seconds = 0.0
    _train_and_die(services)
    left = set(folder.iterdir())
    assert left != set()
    _, others = _train(services, replace(PARAMETERS, alpha=2e-3))
    assert others[0] == 1
    assert set(folder.iterdir()) == left

    again, iterations = _train(services, PARAMETERS)
    assert iterations[0] == KILL_AT - 1
    assert _facts(services, again) == _facts(services, whole)
    assert list(folder.iterdir()) == []


def test_checkpoints_that_no_training_returns_to_are_swept(pairs: Any) -> None:
    settings = pairs.services.settings
    folder = settings.data_dir / "checkpoints"
    assert sweep_checkpoints(settings) == 0
    folder.mkdir()
    for name, days in (("fit-old", 8), ("fit-new", 6), ("other", 8)):
        (folder / name).write_bytes(b"")
        touched_at = (folder / name).stat().st_mtime - days * 86_400
        os.utime(folder / name, (touched_at, touched_at))
    assert sweep_checkpoints(settings) == 1
    assert {path.name for path in folder.iterdir()} == {"fit-new", "other"}


@contextmanager
def trainer_of(order: dict[str, Any]) -> Iterator[tuple[IO[str], IO[str], Callable[[float], int]]]:
    """Start a trainer with an order; yields its output, what it logs, and what waits for its end."""
    with subprocess.Popen(
        [sys.executable, "-m", "app.worker.trainer"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        yield process.stdout, process.stderr, process.wait


def test_the_trainer_logs_as_the_service_does(pairs: Any) -> None:
    pairs.make("a")
    settings = pairs.services.settings.model_copy(update={"log_format": "json"})
    order = {
        "settings": settings.model_dump(mode="json"),
        "collection": "a",
        "parameters": {"of no training": 1},  # an error that the log explains
    }
    with trainer_of(order) as (output, errors, _):
        assert "failure" in json.loads(output.read())
        lines = [json.loads(line) for line in errors.read().splitlines()]
    assert [(line["level"], line["logger"]) for line in lines] == [("ERROR", "app.worker.attempts")]
    assert "of no training" in lines[0]["exc_info"]


def test_a_trainer_whose_worker_was_killed_ends_without_a_word(pairs: Any) -> None:
    pairs.fill("a")
    order = {
        "settings": pairs.services.settings.model_dump(mode="json"),
        "collection": "a",
        "parameters": asdict(PARAMETERS),
    }
    with trainer_of(order) as (output, errors, wait):
        output.close()
        assert errors.read() == ""
        assert wait(60.0) == 1


_SLOW_IMPORTS = """
import time
from app.worker import trainer
trainer.import_for_good = lambda name: time.sleep(600)
print("importing", flush=True)
trainer.main()
"""


def test_a_trainer_that_is_still_importing_ends_with_its_parent() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _SLOW_IMPORTS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"importing\n"
        process.stdin.close()
        try:
            assert process.wait(60.0) == 1
        finally:
            process.kill()


# The last ones: trainers are forked as long as Dask has put nothing into the environment.
OF_DASK = TrainingParameters(method="lrbs", alpha=1e-3, scaling="standard", max_iter=20)


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
        bundles = [services.builder.build("a", OF_DASK, look) for services in (pairs.services, remote)]
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
    outcome = attempt(builder, "a", asdict(OF_DASK), lambda _: None)
    assert isinstance(outcome, Failure)
    assert not isinstance(outcome, BuiltModel)
    assert outcome.may_pass
    assert "no Dask scheduler with a worker at tcp://127.0.0.1:9" in outcome.reason
