"""Fuzz a real server with mutated requests: ``python -m tests.fuzz.run --inputs 10000 --seed 1``."""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import httpx

from app.bootstrap import build
from app.settings import Settings
from tests.app.contract.gallery import served
from tests.faults.campaign import heading
from tests.fuzz.campaign import Campaign, Stored, Tally

PEAK_MEGABYTES = 1500.0
"""Most resident memory the server may need: pictures of all pixels allowed, and room to work."""


def fuzz(inputs: range, seed: int, every: int, database_url: str = "", tells: bool = False) -> Tally:
    """Serve the galleries from a folder of their own, send the inputs and return what came of it."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        with served(data, "--no-worker", database_url=database_url) as gallery:
            paths = httpx.get(f"{gallery.url}/openapi.json", trust_env=False).json()["paths"]
            services = build(Settings(data_dir=data, database_url=database_url, sweep_grace_seconds=0.0))
            stored = Stored(services)
            campaign = Campaign(gallery, stored, seed, any(path.endswith("items:import") for path in paths))
            try:
                campaign.run(inputs, every, lambda text: print(text, file=sys.stderr) if tells else None)  # noqa: T201
            finally:
                services.database.engine.dispose()
    if campaign.tally.peak_megabytes > PEAK_MEGABYTES:
        campaign.tally.breaches.append(f"{campaign.tally.peak_megabytes:.0f} MB of memory at the peak")
    return campaign.tally


def main() -> None:
    """Print a heading and a tally as JSON; exit with 1 where anything was breached."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="send this input alone")
    parser.add_argument("--every", type=int, default=250, help="inputs between two rounds of good requests")
    parser.add_argument("--database-url", default="", help="an empty database; default: SQLite")
    arguments = parser.parse_args()
    only = arguments.only
    inputs = (
        range(arguments.first, arguments.first + arguments.inputs) if only is None else range(only, only + 1)
    )
    print(heading(arguments.seed, inputs=len(inputs)), flush=True)  # noqa: T201
    began = time.monotonic()
    tally = fuzz(inputs, arguments.seed, arguments.every, arguments.database_url, tells=True)
    report = {
        "seconds": round(time.monotonic() - began, 1),
        "statuses": dict(sorted(tally.statuses.items())),
        "kinds": dict(sorted(tally.kinds.items())),
        "good_requests": tally.good_requests,
        "left_files": tally.left_files,
        "megabytes": {
            "start": round(tally.start_megabytes),
            "peak": round(tally.peak_megabytes),
            "end": round(tally.end_megabytes),
        },
        "slowest": [round(tally.slowest_seconds, 2), tally.slowest],
        "breaches": tally.breaches,
    }
    print(json.dumps(report, indent=1, ensure_ascii=False))  # noqa: T201
    sys.exit(bool(tally.breaches))


if __name__ == "__main__":
    main()
