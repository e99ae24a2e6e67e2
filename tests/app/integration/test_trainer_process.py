import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import IO, Any

from app.domain.reports import TrainingParameters
from tests.conftest import ROOT


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
        "parameters": asdict(TrainingParameters()),
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
