"""LRBS: teach two kinds of data to find each other.

What learns and what measures, as `solver` exports it, and clients of a service (`app.client`). The service
itself comes with ``pip install 'lrbs[serve]'``.

Examples
--------
>>> from lrbs import Labels, LowRankBilinear, make_low_rank_pairs
>>> data = make_low_rank_pairs(n_samples_x=60, n_samples_z=50, random_state=0)
>>> model = LowRankBilinear(alpha_fraction=0.1).fit(data.X, data.Z, Labels(data.x_labels, data.z_labels))
>>> model.converged_
True
"""

import importlib
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import solver

if TYPE_CHECKING:
    # isort: off
    from app.client import AsyncClient as AsyncClient, Client as Client
    from app.client import LrbsError as LrbsError, RejectedError as RejectedError
    from solver import *  # noqa: F403 - the names are those that `solver` exports
else:
    _CLIENTS = ("AsyncClient", "Client", "LrbsError", "RejectedError")
    __all__ = [*_CLIENTS, "__version__", *solver.__all__]

    def __getattr__(name: str) -> Any:
        """Import a name when it is first asked for (PEP 562): not everybody needs all of it."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module("app.client") if name in _CLIENTS else solver, name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """List what can be asked for."""
        return sorted({*globals(), *__all__})


__version__ = version("lrbs")
