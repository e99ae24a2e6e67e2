"""The entry point `lrbs`, and `python -m app.cli`: it says what to install if they cannot be loaded."""

from __future__ import annotations

import sys

_OWN = frozenset({"app", "migrations", "solver"})


def main() -> None:
    """Run a command; without the packages of the service, name what brings them and exit with status 1."""
    try:
        from app.cli.main import main as run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in _OWN:
            raise
        sys.exit(f"lrbs: {error.name} is not installed; the commands need: pip install 'lrbs[serve]'")
    run()


if __name__ == "__main__":
    main()
