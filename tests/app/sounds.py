"""Sounds short enough to be made by tests."""

import io
import wave

import numpy as np

RATE = 16_000


def tone(frequency: float, seconds: float = 0.1) -> bytes:
    """Return a WAV file of one tone."""
    stored = io.BytesIO()
    samples = 10_000 * np.sin(np.arange(round(seconds * RATE)) / RATE * frequency * 2 * np.pi)
    with wave.open(stored, "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes(samples.astype("<i2").tobytes())
    return stored.getvalue()
