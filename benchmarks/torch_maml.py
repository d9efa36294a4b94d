"""The opponent: second-order MAML in eager PyTorch, a loop over tasks, as users write it.

python torch_maml.py conv4 SIZE SHOTS
python torch_maml.py regression
"""

import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from common import serve

STEPS = 5
Network = Callable[[list[Tensor], Tensor], Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]


def meta_step(
    network: Network,
    loss: Loss,
    start: list[Tensor],
    tasks: list[tuple[Tensor, Tensor, Tensor, Tensor]],
    optimiser: torch.optim.Optimizer,
    rate: float,
) -> None:
    optimiser.zero_grad()
    for x, y, query_x, query_y in tasks:
        weights = start
        for _ in range(STEPS):
            inner = loss(network(weights, x), y)
            gradient = torch.autograd.grad(inner, weights, create_graph=True)
            weights = [w - rate * g for w, g in zip(weights, gradient, strict=True)]
        # A task's graph is freed before the next one's is built.
        (loss(network(weights, query_x), query_y) / len(tasks)).backward()
    optimiser.step()


def conv4(size: int, shots: int, *, filters: int = 32, ways: int = 5, batch: int = 4) -> Callable:
    scale = torch.ones(filters)

    def network(weights: list[Tensor], x: Tensor) -> Tensor:
        for kernel, bias, offset in zip(weights[:4], weights[4:8], weights[8:12], strict=True):
            x = F.conv2d(x, kernel, bias, padding=1)
            x = F.batch_norm(x, None, None, scale, offset, training=True, eps=1e-3)
            x = F.max_pool2d(F.relu(x), 2)
        return F.linear(x.flatten(1), weights[12], weights[13])

    channels = [3, filters, filters, filters]
    weights = [torch.nn.init.xavier_uniform_(torch.empty(filters, c, 3, 3)) for c in channels]
    weights += [torch.zeros(filters) for _ in range(8)]
    features = (size // 16) ** 2 * filters
    weights += [torch.nn.init.xavier_uniform_(torch.empty(ways, features)), torch.zeros(ways)]
    tasks = []
    for _ in range(batch):
        support, query = (torch.rand(ways * n, 3, size, size) for n in (shots, 15))
        labels = [torch.arange(ways).repeat_interleave(n) for n in (shots, 15)]
        tasks.append((support, labels[0], query, labels[1]))
    return ready(network, F.cross_entropy, weights, tasks, 0.01)


def regression(*, hidden: int = 40, batch: int = 25, points: int = 10) -> Callable:
    def network(weights: list[Tensor], x: Tensor) -> Tensor:
        for i in (0, 2):
            x = F.relu(F.linear(x, weights[i], weights[i + 1]))
        return F.linear(x, weights[4], weights[5])

    weights: list[Tensor] = []
    for a, b in ((2, hidden), (hidden, hidden), (hidden, 1)):
        weights += [torch.nn.init.xavier_uniform_(torch.empty(b, a)), torch.zeros(b)]
    tasks = []
    for _ in range(batch):
        x, y, query_x, query_y = (5 * torch.rand(points, n) for n in (2, 1, 2, 1))
        tasks.append((x, y, query_x, query_y))
    return ready(network, F.mse_loss, weights, tasks, 0.001)


def ready(
    network: Network, loss: Loss, weights: list[Tensor], tasks: list, rate: float
) -> Callable[[int], None]:
    start = [w.requires_grad_() for w in weights]
    optimiser = torch.optim.Adam(start, 1e-3)

    def steps(n: int) -> None:
        for _ in range(n):
            meta_step(network, loss, start, tasks, optimiser, rate)

    return steps


def main() -> None:
    torch.manual_seed(0)
    kind, *numbers = sys.argv[1:]
    steps = conv4(*map(int, numbers)) if kind == "conv4" else regression()
    serve(steps, torch=torch.__version__, threads=torch.get_num_threads())


if __name__ == "__main__":
    main()
