import json
import subprocess
import sys
from typing import Any

from tests.conftest import ROOT


def test_the_trainer_logs_as_the_service_does(pairs: Any) -> None:
    pairs.make("a")
    settings = pairs.services.settings.model_copy(update={"log_format": "json"})
    order = {
        "settings": settings.model_dump(mode="json"),
        "collection": "a",
        "parameters": {"of no training": 1},  # an error that the log explains
    }
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
        assert "failure" in json.loads(process.stdout.read())
        lines = [json.loads(line) for line in process.stderr.read().splitlines()]
    assert [(line["level"], line["logger"]) for line in lines] == [("ERROR", "app.worker.outcome")]
    assert "of no training" in lines[0]["exc_info"]


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
