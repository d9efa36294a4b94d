"""A frozen model alone as a learner: the nearest class mean of its vectors, with nothing trained.

Vectors have one length, and a class's score is about ten times the cosine between a query and the
class's mean. Ten is where the cosine classifier of Gidaris and Komodakis starts [1]; it says how
sure a probability is and changes no label. It was not calibrated on data.

[1] Gidaris and Komodakis, Dynamic Few-Shot Visual Learning without Forgetting, CVPR 2018.
"""

from pathlib import Path

from arml.core.episodes import Problem
from arml.datasets.extractor import Extractor
from arml.experiment.building import built
from arml.experiment.loaded import Portable
from arml.experiment.recipes import recipe

COSINES = 10.0
"""The score of two equal vectors."""


def backbone(model: Path) -> Portable:
    """The learner of an ONNX model of pictures.

    **Raises** `ValueError` as `Extractor`.
    """
    extractor = Extractor(model)
    d = extractor.dimension
    experiment = recipe("features/frozen-protonet")
    problem = Problem("classification", (d,), 5, 5, 15)
    return Portable(
        experiment,
        built(experiment, problem),
        problem,
        (str(extractor.about["saw"]),),
        # -|a - c|^2 of vectors of length sqrt(d) is 2 d cos and terms that hardly differ.
        temperature=2 * d / COSINES,
        inputs=extractor.about,
    )
