"""Reports of trainings that earlier releases recorded."""

import json
from pathlib import Path
from typing import Any


def _read(name: str) -> dict[str, dict[str, Any]]:
    return dict(json.loads((Path(__file__).parent / name).read_text(encoding="utf-8")))


FACTS = _read("reports_without_format.json")
"""Recorded by commit 267c83d: the three methods, the last two compared with the version before and accepted;
one refused by the gate; one with an item that cannot be ranked; one with too few items to hold any out."""
OF_FORMAT_2 = _read("reports_of_format_2.json")
"""Recorded by commit 581adbb: a given penalty, class posteriors, and the choice between both; each but the
first compared with the version before."""
OF_FORMAT_3 = _read("reports_of_format_3.json")
"""Recorded by commit 0443cfb: a sample set with partners, without a version before."""
