"""Sound encoder `mfcc`: cepstral coefficients of WAV and FLAC files, and how they change."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field
from scipy.fft import dct
from typing_extensions import override

from app.domain.entities import Content, Matrix, Vector
from app.domain.errors import ContentTooLargeError, InvalidFieldError, wrong_content
from app.encoders.base import BaseEncoder, import_extra, map_in_threads
from app.encoders.entry import EncoderType, Resources
from app.encoders.options import options_of
from app.encoders.pictures import PixelBudget, reading

_DEFAULT_COEFFICIENTS = 20
_FORMATS = ("WAV", "WAVEX", "FLAC")
_RATES = (4_000, 192_000)  # hertz: lower rates hold no speech, and higher ones are not in use
_MAX_SAMPLES = 10_000_000
"""Of all channels: 10 minutes of speech, or almost 2 of a compact disc's stereo, 40 MB."""
_WINDOW, _STEP = 0.025, 0.010
"""Seconds."""
_LOWEST, _HIGHEST = 20.0, 8000.0
"""Hertz, whatever the rate: sounds that were recorded at several rates are comparable."""
_FILTERS = 40
_FLOOR = 1e-10  # power of digital silence; one step of 16 bits has ten times as much
_FRAMES_AT_ONCE = 2000


_OPTIONS = options_of(
    "mfcc",
    "sounds: cepstral coefficients of WAV and FLAC files",
    coefficients=Annotated[int, Field(ge=2, le=_FILTERS, description="of each window; 20 by default")],
)


class MfccEncoder(BaseEncoder):
    """Describes a sound by mean and deviation of its coefficients and of their differences.
    ``coefficients`` (20) are of each window of 25 ms, every 10 ms (Davis and Mermelstein, 1980)."""

    content_form = "sound"

    def __init__(self, options: Mapping[str, Any], resources: Resources) -> None:
        self._n_coefficients: int = options.get("coefficients", _DEFAULT_COEFFICIENTS)
        self._limits = resources.pictures

    @override
    def check(self, field: str, raw: Content) -> None:
        if raw.sound is None:
            raise wrong_content(field, "sound")
        self._limits.check_size(field, raw.sound)
        _read_sound(field, raw.sound, self._limits.budget)

    @override
    def encode(self, raw: Sequence[Content]) -> Matrix:
        """Return the (n, 4 * coefficients) features."""
        return np.stack(map_in_threads(self._describe, raw))

    @override
    def settled_options(self) -> dict[str, Any]:
        import_extra("soundfile", "sounds")
        return {}

    def _describe(self, content: Content) -> Vector:
        samples, rate = _read_sound("sound", content.sound or b"", self._limits.budget)
        coefficients = np.concatenate(list(self._coefficients(samples, rate)))
        changes = np.diff(coefficients, axis=0) if len(coefficients) > 1 else np.zeros_like(coefficients)
        parts = [part for rows in (coefficients, changes) for part in (rows.mean(axis=0), rows.std(axis=0))]
        return np.concatenate(parts).astype(np.float32)

    def _coefficients(self, samples: npt.NDArray[np.float32], rate: int) -> Iterator[npt.NDArray[np.float64]]:
        """Yield the coefficients of some windows after the other."""
        width, step = round(_WINDOW * rate), round(_STEP * rate)
        windows = np.lib.stride_tricks.sliding_window_view(samples, width)[::step]
        taper, filters = np.hamming(width), _mel_filters(width, rate)
        for start in range(0, len(windows), _FRAMES_AT_ONCE):
            spectrum = np.fft.rfft(windows[start : start + _FRAMES_AT_ONCE] * taper, axis=1)
            power = np.abs(spectrum) ** 2 @ filters / width**2
            logarithms = np.log(np.maximum(power, _FLOOR))
            yield dct(logarithms, type=2, norm="ortho", axis=1)[:, : self._n_coefficients]


def _read_sound(field: str, content: bytes, budget: PixelBudget) -> tuple[npt.NDArray[np.float32], int]:
    """Return the mean of all channels, and the rate; raises InvalidFieldError.
    A sample takes as much of what may be decoded at once as a pixel, whose size it has."""
    with reading(field, "sound"):
        file = _open_sound(field, content)
    with file:
        if file.format not in _FORMATS:
            raise InvalidFieldError(field, f"is a {file.format} file, expected WAV or FLAC")
        if not _RATES[0] <= file.samplerate <= _RATES[1]:
            raise InvalidFieldError(
                field, f"has {file.samplerate} samples a second, expected {_RATES[0]} to {_RATES[1]}"
            )
        n_samples = file.frames * file.channels
        if n_samples > _MAX_SAMPLES:
            raise ContentTooLargeError(field, f"{n_samples} samples, at most {_MAX_SAMPLES} allowed")
        with budget.reserve(n_samples):
            with reading(field, "sound"):
                samples = file.read(file.frames, dtype="float32", always_2d=True)
            if len(samples) < max(file.frames, round(_WINDOW * file.samplerate)):
                raise InvalidFieldError(field, "the sound is cut off, or shorter than 25 milliseconds")
            if not np.isfinite(samples).all():
                raise InvalidFieldError(field, "has samples that are not finite")
            return np.clip(samples, -1.0, 1.0, out=samples).mean(axis=1), file.samplerate


def _open_sound(field: str, content: bytes) -> Any:
    soundfile = import_extra("soundfile", "sounds")
    try:
        return soundfile.SoundFile(io.BytesIO(content))
    except soundfile.LibsndfileError as error:
        raise InvalidFieldError(
            field, f"is no readable sound, expected WAV or FLAC: {error.error_string}"
        ) from error


def _mel_filters(width: int, rate: int) -> npt.NDArray[np.float64]:
    """Return the weight of each frequency in each of the triangular filters."""
    mel = np.linspace(_to_mel(_LOWEST), _to_mel(_HIGHEST), _FILTERS + 2)
    edges = 700.0 * (10.0 ** (mel / 2595.0) - 1.0)
    frequencies = np.fft.rfftfreq(width, 1.0 / rate)[:, None]
    rising = (frequencies - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - frequencies) / (edges[2:] - edges[1:-1])
    return np.maximum(np.minimum(rising, falling), 0.0)


def _to_mel(frequency: float) -> float:
    return 2595.0 * float(np.log10(1.0 + frequency / 700.0))


ENCODER = EncoderType(_OPTIONS, MfccEncoder, "sound")
