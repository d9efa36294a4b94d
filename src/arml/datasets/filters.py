"""The blur and the pencil filter, by OpenCV. They make two more families of a family of pictures.

Art-Multi has each family of Plain-Multi also through these two filters [1]. The paper says that
OpenCV provides them, and shows one picture of each. Their kernels are not published, and the
authors' archive has the finished pictures, so the numbers here are our own. They are fractions of
the picture's side: a picture of 32 px changes as much as one of 84 px.

[1] Yao et al., Automated Relational Meta-learning, ICLR 2020, section 5.2 and appendix B.2.
"""

from collections.abc import Callable

import cv2
import numpy as np
from jaxtyping import UInt8

Filter = Callable[[UInt8[np.ndarray, "n h w 3"]], UInt8[np.ndarray, "n h w 3"]]

BLUR = 1 / 32
"""Standard deviation of the Gaussian, as a fraction of the shorter side: 1 px of 32, 2.6 of 84."""
PENCIL = 1 / 20
"""The same for the surroundings with which the pencil filter compares: 1.6 px of 32, 4.2 of 84."""

DARKEST = np.uint8(16)
"""The pencil filter raises darker values to this one: black divided by black would stay black."""


def blur(images: UInt8[np.ndarray, "n h w 3"]) -> UInt8[np.ndarray, "n h w 3"]:
    """Each picture through a Gaussian of `BLUR`; the border is reflected."""
    return _each(images, lambda image: _gaussian(image, BLUR))


def pencil(images: UInt8[np.ndarray, "n h w 3"]) -> UInt8[np.ndarray, "n h w 3"]:
    """Each picture as a pencil drawing: grey lines on white paper.

    The usual recipe with OpenCV, `grey / (255 - blurred(255 - grey))` ("colour dodge"): a pixel
    that is as light as its surroundings becomes paper, and a darker one becomes a line.
    (`cv2.pencilSketch` smooths over 60 px, and leaves little of a picture of 32.)
    """

    def drawn(image: np.ndarray) -> np.ndarray:
        grey = np.maximum(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), DARKEST)
        lines = cv2.divide(grey, 255 - _gaussian(255 - grey, PENCIL), scale=255)
        return cv2.cvtColor(lines, cv2.COLOR_GRAY2RGB)

    return _each(images, drawn)


FILTERS: dict[str, Filter] = {"blur": blur, "pencil": pencil}
"""Every filter by name."""


def _gaussian(image: np.ndarray, part: float) -> np.ndarray:
    # OpenCV filters bytes in whole numbers: the result is the same on every machine.
    return cv2.GaussianBlur(image, (0, 0), part * min(image.shape[:2]))


def _each(
    images: UInt8[np.ndarray, "n h w 3"], change: Callable[[np.ndarray], np.ndarray]
) -> UInt8[np.ndarray, "n h w 3"]:
    out = np.empty_like(images)
    for image, place in zip(images, out, strict=True):
        place[...] = change(image)
    return out
