"""The learner of photographs. It uses the features of a network that was trained on ImageNet."""

from pathlib import Path

import numpy as np
from jaxtyping import Float32

from arml.datasets.features import PHOTOS_MODEL, Extractor, extractor_of
from arml.photographs.reading import sized
from arml.predict.encoded import EncodedLearner
from arml.predict.kinds import named_kind
from arml.results.files import Json


class PhotoLearner(EncodedLearner):
    """Learns a user's own classes from a few photographs of each.

    Pictures are given as a list of files (paths), of Pillow images, or of arrays `[h, w, 3]` of any
    size, or as one array `[n, h, w, 3]`. Arrays hold bytes, or floats in [0, 1]. Vectors `[n, d]`,
    as `read` returns them, are accepted, too.

    **Arguments**

    - `model`: a frozen ONNX model of pictures; the package's own, EfficientNet-Lite0, if not given.
    - `options`: `output`, `pool`, `size`, `mean`, `std` and `crop` of the model, if they differ
      from `preprocessor_config.json` and from the defaults: see `arml.datasets.features.Extractor`.
    """

    def __init__(self, model: Path | str | Extractor | None = None, **options: object) -> None:
        super().__init__(named_kind("photographs"))
        if isinstance(model, Extractor):
            self._extractor = model
        else:
            path = PHOTOS_MODEL if model is None else model
            self._extractor = extractor_of(path, options, unit=False, crop=True, threads=1)
        self.families, self.path = (str(self.facts["saw"]),), self._extractor.path

    @property
    def extractor(self) -> Extractor:
        return self._extractor

    @property
    def dimension(self) -> int:
        return self.extractor.dimension

    @property
    def facts(self) -> Json:
        return self.extractor.about

    def encode(self, content: object, where: str, doubts: list[str]) -> Float32[np.ndarray, " d"]:
        extractor = self.extractor
        assert isinstance(content, bytes | np.ndarray)
        pixels = sized(where, content, extractor.size, extractor.crop, doubts.append)
        return np.asarray(extractor(pixels[None])[0])

    @property
    def notes(self) -> list[str]:
        if self.extractor.path == PHOTOS_MODEL:
            return []
        return [self.extractor.summary, *filter(None, [self.extractor.doubt])]

    def __repr__(self) -> str:
        return f"PhotoLearner({self.extractor.summary}; trained on {self.facts['saw']})"
