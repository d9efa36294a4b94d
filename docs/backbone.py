"""Export a pretrained photo model to one ONNX file for `arml features` and `arml adapt`.

    pip install torch torchvision onnx               # or: pip install torch timm onnx
    python docs/backbone.py resnet18 --out resnet18.onnx
    python docs/backbone.py timm:vit_small_patch14_dinov2.lvd142m --out dino.onnx --size 224

The file reads bytes `[n, size, size, 3]` and gives vectors `[n, d]`: normalisation is inside, the
classifier is not. The weights are downloaded from the model's publisher. `--random` leaves them as
they are drawn, to try the export without a network.
"""

import argparse
from pathlib import Path

import onnx
import torch

HEADS = ("fc", "classifier", "heads", "head")
"""Names that torchvision's models have for what follows the pooled features."""
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


class Eye(torch.nn.Module):
    """Bytes to vectors."""

    def __init__(self, body: torch.nn.Module, mean: list[float], std: list[float]) -> None:
        super().__init__()
        self.body = body
        self.register_buffer("mean", 255 * torch.tensor(mean))
        self.register_buffer("std", 255 * torch.tensor(std))

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        x = (pictures.float() - self.mean) / self.std
        return self.body(x.permute(0, 3, 1, 2)).flatten(1)


def torchvision_model(name: str, *, random: bool) -> tuple[Eye, str]:
    from torchvision.models import get_model

    body = get_model(name, weights=None if random else "DEFAULT")
    (head,) = (head for head in HEADS if hasattr(body, head))
    setattr(body, head, torch.nn.Identity())
    return Eye(body, *IMAGENET), f"ImageNet-1k (torchvision {name}, default weights)"


def timm_model(name: str, size: int, *, random: bool) -> tuple[Eye, str]:
    import timm

    sized = {"img_size": size} if name.startswith("vit") else {}
    body = timm.create_model(name, pretrained=not random, num_classes=0, **sized)
    known = timm.data.resolve_model_data_config(body)
    return Eye(body, known["mean"], known["std"]), f"as its page on timm's hub says ({name})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", help="a torchvision name, or timm:NAME")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", type=int, default=224, help="pixels a side")
    parser.add_argument("--random", action="store_true", help="no pretrained weights")
    options = parser.parse_args()
    library, _, name = options.model.rpartition(":")
    if library == "timm":
        eye, saw = timm_model(name, options.size, random=options.random)
    else:
        eye, saw = torchvision_model(name, random=options.random)
    example = torch.zeros(2, options.size, options.size, 3, dtype=torch.uint8)
    torch.onnx.export(
        eye.eval(),
        (example,),
        str(options.out),
        input_names=["pictures"],
        output_names=["vectors"],
        dynamic_axes={"pictures": {0: "n"}, "vectors": {0: "n"}},
        opset_version=18,
        dynamo=False,  # the older exporter needs no further package
    )
    made = onnx.load(str(options.out))
    onnx.helper.set_model_props(made, {"arml.saw": "nothing" if options.random else saw})
    onnx.save(made, str(options.out))
    print(f"{options.out}: {options.size} px to vectors, {options.out.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
