"""A kind of input of your own: short sounds. Each becomes the mean and the spread over time of its
log spectrum.

    arml adapt sounds --plugin docs/own_inputs.py --support claps/ --query new/

`claps/` has a folder of WAV files for each class.
"""

import io
import struct
from typing import Any

import numpy as np
from scipy.io import wavfile
from scipy.signal import resample_poly, stft

import arml

RATE, BANDS = 16_000, 40


class Sounds(arml.Inputs):
    """Short sounds: WAV files, or arrays of samples at 16 kHz."""

    one, many = "sound", "sounds"
    suffixes = (".wav",)
    dimension = 2 * BANDS

    def vector(self, content: Any, where: str) -> np.ndarray:
        samples = content
        if isinstance(content, bytes):
            try:
                rate, samples = wavfile.read(io.BytesIO(content))
            except (ValueError, struct.error) as error:
                raise ValueError(f"{where}: expected a WAV file, got: {error}") from error
            if samples.dtype.kind in "iu":  # 8 bits have no sign, and their zero is 128
                kind = np.iinfo(samples.dtype)
                samples = (samples - (kind.max + kind.min + 1) / 2) / (kind.max - kind.min) * 2
            samples = samples.mean(axis=1) if samples.ndim == 2 else samples
            samples = resample_poly(samples, RATE, int(rate))
        samples = np.asarray(samples, np.float64)
        if samples.ndim != 1 or len(samples) < 512:
            raise ValueError(f"{where}: expected 512 samples or more, got {list(samples.shape)}")
        power = np.abs(stft(samples, RATE, nperseg=512)[2]) ** 2
        edges = np.unique(np.geomspace(1, len(power), BANDS + 1).round().astype(int))
        bands = np.add.reduceat(power, edges[:-1] - 1) / np.diff(edges)[:, None]
        logs = np.log(bands + 1e-8)
        logs = np.pad(logs, ((0, BANDS - len(logs)), (0, 0)))
        return np.concatenate([logs.mean(axis=1), logs.std(axis=1)])

    def examples(self) -> tuple[list[np.ndarray], list[str]]:
        """Low and high tones with noise, for `arml check docs/own_inputs.py`."""
        draw, labels = np.random.default_rng(0), ["low", "high"] * 5
        pitch = {"low": 300, "high": 1500}
        waves = [np.sin(np.arange(RATE) * pitch[label] / RATE * 2 * np.pi) for label in labels]
        return [wave + draw.normal(0, 0.3, RATE) for wave in waves], labels


arml.register("inputs", "sounds", Sounds)
