"""LRBS: teach two kinds of data to find each other.

What learns and what measures, as `solver` exports it. The service behind it is `pip install 'lrbs[serve]'`.

Examples
--------
>>> from lrbs import Labels, LowRankBilinear, make_low_rank_pairs
>>> data = make_low_rank_pairs(n_samples_x=60, n_samples_z=50, random_state=0)
>>> model = LowRankBilinear(alpha_fraction=0.1).fit(data.X, data.Z, Labels(data.x_labels, data.z_labels))
>>> model.converged_
True
"""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import solver

if TYPE_CHECKING:
    from solver import *  # noqa: F403 - the names are those that `solver` exports
else:

    def __getattr__(name: str) -> Any:
        """Return a name of `solver`, which imports it when it is first asked for (PEP 562)."""
        if name not in solver.__all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(solver, name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """List what can be asked for."""
        return sorted({*globals(), *__all__})


__version__ = version("lrbs")
__all__ = ["__version__"]
__all__ += solver.__all__
