"""easyfsl's ProtoNet in PyTorch, as its users write it: the opponent of `time_to_accuracy.py`.

    python torch_protonet.py FOLDER MINUTES SEED

`FOLDER` has `train.json`, `validation.json` and `test.json` as `EasySet` reads them. It trains for
the minutes that are left since the process started, scores 200 validation and 200 test tasks, and
prints one line of JSON.
"""

import json
import random
import sys
import time
from itertools import pairwise

BEGUN = time.monotonic()

import torch  # noqa: E402
from easyfsl.datasets import EasySet  # noqa: E402
from easyfsl.methods import PrototypicalNetworks  # noqa: E402
from easyfsl.samplers import TaskSampler  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, Sampler  # noqa: E402
from torchvision import transforms  # noqa: E402

SIZE, FILTERS, WAYS, SHOTS, QUERIES, TASKS = 32, 32, 5, 5, 15, 200


# easyfsl 1.5 gives it an argument that PyTorch has dropped.
Sampler.__init__ = lambda self, data_source=None: None  # type: ignore[method-assign,misc]


def conv4() -> nn.Sequential:
    """The same network as ours."""
    channels = (3, FILTERS, FILTERS, FILTERS, FILTERS)
    blocks = (
        nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2))
        for a, b in pairwise(channels)
    )
    return nn.Sequential(*blocks, nn.Flatten())


def loader(file: str, tasks: int) -> DataLoader:
    """Tasks of the classes that a file names."""
    transform = transforms.Compose(
        [
            transforms.Resize((SIZE, SIZE)),
            transforms.ToTensor(),
            transforms.Normalize([0.5] * 3, [0.5] * 3),
        ]
    )
    data = EasySet(file, image_size=SIZE, transform=transform)
    sampler = TaskSampler(data, n_way=WAYS, n_shot=SHOTS, n_query=QUERIES, n_tasks=tasks)
    return DataLoader(data, batch_sampler=sampler, collate_fn=sampler.episodic_collate_fn)


def accuracy(model: PrototypicalNetworks, file: str) -> float:
    """The mean over tasks of the classes that a file names."""
    scores = []
    with torch.no_grad():
        for support, labels, query, wanted, _ in loader(file, TASKS):
            model.process_support_set(support, labels)
            scores.append(float((model(query).argmax(1) == wanted).float().mean()))
    return sum(scores) / len(scores)


def main() -> None:
    """Train, score, print."""
    folder, minutes, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    random.seed(seed)  # easyfsl draws tasks with it
    torch.manual_seed(seed)
    model = PrototypicalNetworks(conv4())
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    steps = 0
    model.train()
    for support, labels, query, wanted, _ in loader(f"{folder}/train.json", 10**6):
        optimiser.zero_grad()
        model.process_support_set(support, labels)
        loss = nn.functional.cross_entropy(model(query), wanted)
        loss.backward()
        optimiser.step()
        steps += 1
        if time.monotonic() - BEGUN > 60 * minutes:
            break
    seconds = time.monotonic() - BEGUN
    model.eval()
    scores = {
        part: round(accuracy(model, f"{folder}/{part}.json"), 4) for part in ("validation", "test")
    }
    print(json.dumps({**scores, "steps": steps, "seconds": round(seconds, 1)}))


if __name__ == "__main__":
    main()
