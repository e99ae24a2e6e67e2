"""Pictures as phones, cameras and scanners make them."""

import io

import numpy as np
from PIL import ExifTags, Image

from tests.conftest import import_extra


def picture_of(form: str, colour: tuple[int, int, int], seed: int = 0) -> bytes:
    """Return a picture of almost one colour, turned, and of two frames where there can be."""
    import_extra("pillow_heif").register_heif_opener()
    noise = np.random.default_rng(seed).integers(0, 40, (24, 32, 3))
    source = Image.fromarray((np.array(colour) + noise).clip(0, 255).astype(np.uint8))
    exif, stored = Image.Exif(), io.BytesIO()
    exif[ExifTags.Base.Orientation] = 6
    more = (
        {"save_all": True, "append_images": [Image.new("RGB", (32, 24))]} if form in ("MPO", "TIFF") else {}
    )
    source.save(stored, form, exif=exif.tobytes(), **more)
    return stored.getvalue()
