"""What is stored as JSON is read by several threads of a process that has just started."""

import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

REPORTS = Path(__file__).parents[2] / "reports_of_format_3.json"
THREADS, PROCESSES = 16, 4
"""More than half of the processes crashed where nothing was prepared."""
READ = """
import json, sys, threading

from app.domain.reports import TrainingParameters
from app.domain.reports import TrainingReport

(report,) = json.loads(sys.stdin.read()).values()
sys.setswitchinterval(1e-6)
gate = threading.Barrier(int(sys.argv[1]))
found = []


def read():
    gate.wait()
    found.append(TrainingReport.from_json(report))
    gate.wait()
    found.append(TrainingParameters.from_json({"alpha": 0.5, "supervision": {"labels": True}}))


threads = [threading.Thread(target=read) for _ in range(gate.parties)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(found))
"""


def test_threads_of_a_new_process_may_read_their_first_report_at_the_same_time() -> None:
    report = REPORTS.read_bytes()
    command = [sys.executable, "-c", READ, str(THREADS)]
    started = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(PROCESSES)
    ]
    outputs = [process.communicate(report, timeout=120)[0] for process in started]
    assert [process.returncode for process in started] == [0] * PROCESSES
    assert [int(output) for output in outputs] == [2 * THREADS] * PROCESSES
