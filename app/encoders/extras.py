"""Libraries that only some encoders need, and an extra installs."""

from __future__ import annotations

import importlib
from typing import Any

from app.domain.errors import EncoderUnavailableError


def import_extra(module: str, extra: str) -> Any:
    """Return a module, imported when it is first needed; raises EncoderUnavailableError if it is absent."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise EncoderUnavailableError(
            f"this encoder needs the extra {extra!r}: pip install 'lrbs[{extra}]'"
        ) from error
