"""What the galleries are called and made of; imported where the service itself is not needed."""

import io

import numpy as np
from PIL import Image

PRODUCTS, VECTORS = "products", "vectors"
"""Of pictures and texts, and of own features with 2 numbers and 1; both trained."""
GALLERIES = (PRODUCTS, VECTORS)
SPARES = tuple(f"spare-{number}" for number in range(30))
"""Empty collections, to be deleted."""
COLOURS = {"shoes": (200, 40, 40), "wallets": (60, 120, 40)}


def picture(label: str, number: int = 0, form: str = "PNG") -> bytes:
    """Return a small picture file."""
    noise = np.random.default_rng(number).integers(0, 40, (24, 24, 3))
    stored = io.BytesIO()
    Image.fromarray((np.array(COLOURS[label]) + noise).clip(0, 255).astype(np.uint8)).save(stored, form)
    return stored.getvalue()
