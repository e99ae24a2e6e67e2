"""What the processes of the service import when they start."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

TRAINING_ONLY = (
    "sklearn",
    "scipy.optimize",
    "scipy.stats",
    "solver.bilinear",
    "solver.comparison",
    "solver.benchmark",
)
"""Imported by the process that trains, and by who loads a model that needs it."""
SCHEMA_ONLY = ("alembic",)
SHORT = ("search", "models", "feedback", "keys", "db", "ingest", "train", "serve", "worker")
"""Commands that need none of it themselves."""


def test_server_worker_and_commands_start_without_what_only_training_needs() -> None:
    late = (*TRAINING_ONLY, *SCHEMA_ONLY)
    program = (
        "import sys, app.main, app.cli.main, app.worker\n"
        "from app.cli.main import ENTRIES\n"
        f"for name in {SHORT!r}: ENTRIES[name].load(name)\n"
        f"print([name for name in {late!r} if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


def test_commands_on_the_database_here_start_without_what_searches_and_encodes(
    tmp_path: Path, copy_migrated: Callable[[Path], None]
) -> None:
    heavy = (
        "fastapi",
        "faiss",
        "scipy",
        "httpx",
        "app.encoders.registry",
        "app.services.serving",
        "app.main",
    )
    program = (
        "import sys, app.cli.local_backend, app.cli.serve, app.worker.worker\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"
    copy_migrated(tmp_path)
    program = (
        "import sys\n"
        "from app.cli.main import main\n"
        "for arguments in (['create', 'a'], ['list'], ['delete', 'a', '--yes'], ['list']):\n"
        "    sys.argv[1:] = ['collections', *arguments]\n"
        "    try:\n"
        "        main()\n"
        "    except SystemExit as ended:\n"
        "        assert not ended.code\n"
        "print([name for name in ('faiss', 'solver', 'app.services.serving') if name in sys.modules])"
    )
    environment = {**os.environ, "LRBS_DATA_DIR": str(tmp_path), "LRBS_DATABASE_URL": ""}
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    lines = ended.stdout.splitlines()
    assert ([line.split()[0] for line in lines[:-1]], lines[-1]) == (["a", "a"], "[]"), ended
