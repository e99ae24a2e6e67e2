"""All checks of schemathesis against a real server: ``python -m tests.app.contract.run --examples 300``."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.domain.names import Scope
from tests.app.contract.gallery import Gallery, served
from tests.faults.campaign import heading

CONFIG = Path(__file__).with_name("schemathesis.toml")
PHASES = "examples,coverage,fuzzing,stateful"
SAME_BODY = "search_version"
"""Operation that reads its body by the dependency of `search`, whose cases it would only repeat."""


@dataclass(frozen=True)
class Outcome:
    """What a run said, and its report."""

    passed: bool
    said: str
    report: dict[str, Any]

    def tally(self) -> dict[str, Any]:
        rates = [phase for phases in self.report["valid_rates"].values() for phase in phases.values()]
        return {
            "cases": self.report["test_cases"]["generated"],
            "failures": self.report["test_cases"]["unique_failures"],
            "errors": len(self.report["errors"]),
            "valid_accepted": sum(rate["accepted"] for rate in rates),
            "valid_refused": self.report["filtered"],
            "seconds": round(self.report["running_time"], 1),
        }


def run_schemathesis(
    gallery: Gallery, folder: Path, examples: int, seed: int, scope: Scope | None, phases: str = PHASES
) -> Outcome:
    """Run every check with a key of this scope, or with none."""
    folder.mkdir(parents=True, exist_ok=True)
    report = folder / "report.json"
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG), "run"]
    command += [f"{gallery.url}/openapi.json", "--checks", "all", "--phases", phases, "--seed", str(seed)]
    command += ["--max-examples", str(examples), "--generation-database", "none", "--no-color"]
    command += ["--exclude-operation-id", SAME_BODY]
    command += ["--report", "json", "--report-json-path", str(report)]
    if scope is not None:
        command += ["--header", f"Authorization: Bearer {gallery.keys[scope]}"]
    # Each request looks through all variables, twice.
    environment = {
        "PATH": os.environ["PATH"],
        "SCHEMATHESIS_HOOKS": "tests.app.contract.hooks",
        "LRBS_CONTRACT_KEY_IDS": ",".join(gallery.key_ids),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(Path.cwd()), os.environ.get("PYTHONPATH")))),
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    said = done.stdout + done.stderr
    if not report.exists():
        raise RuntimeError(f"schemathesis did not run:\n{said}")
    return Outcome(done.returncode == 0, said, json.loads(report.read_text()))


def main() -> None:
    """Run with an admin key and without any; after a heading, print one line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=100, help="most cases for each operation and phase")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--worker", action="store_true", help="let a worker run the retrains that are asked for"
    )
    arguments = parser.parse_args()
    print(heading(arguments.seed, examples=arguments.examples), flush=True)  # noqa: T201
    options = () if arguments.worker else ("--no-worker",)
    outcomes = {}
    with tempfile.TemporaryDirectory() as folder, served(Path(folder) / "data", *options) as gallery:
        for name, scope in (("admin key", Scope.ADMIN), ("no key", None)):
            outcome = run_schemathesis(
                gallery, Path(folder) / name, arguments.examples, arguments.seed, scope
            )
            outcomes[name] = outcome.passed
            if not outcome.passed:
                print(outcome.said)  # noqa: T201
            print(json.dumps({"with": name, **outcome.tally()}), flush=True)  # noqa: T201
    sys.exit(not all(outcomes.values()))


if __name__ == "__main__":
    main()
