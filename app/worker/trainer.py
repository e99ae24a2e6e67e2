"""Entry point of the trainer's process."""

from __future__ import annotations

from app.imports import import_for_good

_LEARNING = ("app.services.training.data", "app.services.training.select_and_fit")
"""What a service imports only when it trains."""


def main() -> None:
    """Train once."""
    for module in _LEARNING:
        import_for_good(module)
    import_for_good("app.worker.order").train_as_ordered()


if __name__ == "__main__":
    main()
