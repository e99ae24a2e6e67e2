"""A training whose process is killed goes on from its last checkpoint, with the result of one that is not."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from app.bootstrap import Services, sweep_checkpoints
from app.domain.entities import BuiltModel
from app.services.training.requests import TrainingParameters
from app.worker.attempts import attempt

ROOT = Path(__file__).parents[3]
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
