"""The notebooks run from their first cell to the last, and say what they promise."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def run(script: str, *arguments: str, **environment: str) -> str:
    command = [sys.executable, str(ROOT / script), *arguments]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_similarity_is_learned(tmp_path: Path) -> None:
    said = run("solver/examples/learn_a_similarity.py", str(tmp_path))
    assert len(re.findall(r"^alpha_fraction [\d.]+: MAP 0\.\d+$", said, re.MULTILINE)) == 4
    learned, correlated = (float(value) for value in re.findall(r"^(?:LowRank|CCA).*MAP (\S+)$", said, re.M))
    assert learned > correlated > 0.2
    classes, of_query = re.findall(r"first five: (\[.*\]) of the query: (\d)", said)[0]
    assert classes.count(of_query) >= 3
    assert {file.name for file in tmp_path.iterdir()} == {"singular-values.svg", "convergence.svg"}


def test_a_shelf_is_filled_trained_and_searched(demo_server: str, demo_key: str) -> None:
    said = run("app/examples/search_a_shelf.py", demo_server, LRBS_API_KEY=demo_key).splitlines()
    assert said[0] == "72 items stored"
    assert [line.split()[1] for line in said[2:5]] == ["['blue']"] * 3
    assert said[5:] == ["a red shoe"] * 3
