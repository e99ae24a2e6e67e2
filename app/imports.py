"""Imports that leave the collector of garbage nothing to look at."""

from __future__ import annotations

import gc
import importlib
import sys
from types import ModuleType


def import_for_good(name: str) -> ModuleType:
    """Import a module whose objects stay as long as the process: no collection of garbage looks at them."""
    # Collections during the imports, and the last ones at the end of the process, otherwise take a third of
    # the time of a short process.
    if name in sys.modules or not gc.isenabled():
        return importlib.import_module(name)
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        gc.enable()
