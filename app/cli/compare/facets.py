"""Which columns or metadata keys of items are facets, for measuring how alike items are."""

from __future__ import annotations

from collections.abc import Sequence

from app.domain.errors import InvalidFieldError
from app.domain.names import join_words
from app.services.training.facets import MetadataSides, categorical_keys, facet_name, facet_values

Values = list[tuple[str, ...]]
"""Values of each row; none where they are unknown."""


def facets_of(
    sides: MetadataSides, is_train: Sequence[bool], names: Sequence[str] | None
) -> dict[str, tuple[Values, Values]]:
    """Return the values of each facet of the rows of both modalities, by name or as a training finds them in
    training rows."""
    # Raises InvalidFieldError (names the option) if a named key has no value in one of the modalities.
    if names is None:
        x_train, z_train = (
            [metadata for metadata, is_fitted in zip(side, is_train, strict=True) if is_fitted]
            for side in sides
        )
        names = categorical_keys((x_train, z_train), labels=None)
    facets = {}
    for key in names:
        first, second = ([facet_values(metadata, key) for metadata in side] for side in sides)
        if not any(first) or not any(second):
            keys = sorted({key for side in sides for metadata in side for key in metadata})
            raise InvalidFieldError(
                "--facets", f"no item has a value of {key!r}, there are {join_words(keys)}"
            )
        facets[facet_name(key)] = first, second
    return facets
