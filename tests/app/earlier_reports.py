"""Reports of trainings that a release before formats recorded, one of each kind."""

import json
from pathlib import Path
from typing import Any

FACTS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "reports_without_format.json").read_text(encoding="utf-8")
)
"""Recorded by commit 267c83d: the three methods, the last two compared with the version before and accepted;
one refused by the gate; one with an item that cannot be ranked; one with too few items to hold any out."""
