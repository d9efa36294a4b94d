"""The opponents: second-order MAML in PyTorch, as users write it, on the same tasks.

python torch_maml.py OPPONENT conv4 SIZE SHOTS
python torch_maml.py OPPONENT regression

`loop` is a bare loop over tasks with `create_graph=True`, `func` is `torch.func`: `vmap` over tasks
of nested `grad`s. In float64 its first gradient must be that of `loop`: in float32 five inner steps
through batch normalisation and max-pooling magnify rounding to some percent.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from common import serve

STEPS = 5
Network = Callable[[list[Tensor], Tensor], Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]
Problem = tuple[Network, Loss, list[Tensor], list[tuple[Tensor, ...]], float]
Gradients = Callable[[], None]
"""Adds the gradient of the mean query loss of all tasks to the weights' own."""


def loop(network: Network, loss: Loss, start: list[Tensor], tasks: list, rate: float) -> Gradients:
    def gradients() -> None:
        for x, y, query_x, query_y in tasks:
            weights = start
            for _ in range(STEPS):
                inner = loss(network(weights, x), y)
                gradient = torch.autograd.grad(inner, weights, create_graph=True)
                weights = [w - rate * g for w, g in zip(weights, gradient, strict=True)]
            # A task's graph is freed before the next one's is built.
            (loss(network(weights, query_x), query_y) / len(tasks)).backward()

    return gradients


def func(network: Network, loss: Loss, start: list[Tensor], tasks: list, rate: float) -> Gradients:
    batch = [torch.stack(part) for part in zip(*tasks, strict=True)]

    def adapted(weights: list[Tensor], x: Tensor, y: Tensor, qx: Tensor, qy: Tensor) -> Tensor:
        for _ in range(STEPS):
            gradient = torch.func.grad(lambda w: loss(network(w, x), y))(weights)
            weights = [w - rate * g for w, g in zip(weights, gradient, strict=True)]
        return loss(network(weights, qx), qy)

    # Images go one task at a time: a batch of kernels would make grouped convolutions, and hold
    # the graphs of all tasks at once.
    chunk = 1 if batch[0].ndim > 3 else None
    meta = torch.func.vmap(torch.func.grad(adapted), in_dims=(None, 0, 0, 0, 0), chunk_size=chunk)

    def gradients() -> None:
        for w, g in zip(start, meta([w.detach() for w in start], *batch), strict=True):
            w.grad = g.mean(0)

    return gradients


OPPONENTS = {"loop": loop, "func": func}


def conv4(size: int, shots: int, *, filters: int = 32, ways: int = 5, batch: int = 4) -> Problem:
    def network(weights: list[Tensor], x: Tensor) -> Tensor:
        for kernel, bias, offset in zip(weights[:4], weights[4:8], weights[8:12], strict=True):
            x = F.conv2d(x, kernel, bias, padding=1)
            scale = torch.ones_like(offset)
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
    return network, F.cross_entropy, weights, tasks, 0.01


def regression(*, hidden: int = 40, batch: int = 25, points: int = 10) -> Problem:
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
    return network, F.mse_loss, weights, tasks, 0.001


def ready(opponent: str, problem: Problem) -> tuple[Callable[[int], None], dict[str, Any]]:
    """`steps(n)` takes `n` outer steps; and how far the gradient of the first task is from that of
    `loop` in float64, as a share of the largest."""
    network, loss, weights, tasks, rate = problem
    start = [torch.nn.Parameter(w) for w in weights]
    gradients = OPPONENTS[opponent](network, loss, start, tasks, rate)
    optimiser = torch.optim.Adam(start, 1e-3)
    facts = {}
    if opponent != "loop":
        found = []
        task = tuple(a.double() if a.is_floating_point() else a for a in tasks[0])
        for each in (OPPONENTS[opponent], loop):
            own = [torch.nn.Parameter(w.detach().double()) for w in start]
            each(network, loss, own, [task], rate)()
            found.append(torch.cat([w.grad.flatten() for w in own if w.grad is not None]))
        apart = float((found[0] - found[1]).abs().max() / found[1].abs().max())
        if not apart < 1e-6:
            raise RuntimeError(
                f"{opponent}'s gradient is {apart:.1e} from the loop's: another step"
            )
        facts["gradient_apart_from_loop"] = apart

    def steps(n: int) -> None:
        for _ in range(n):
            optimiser.zero_grad()
            gradients()
            optimiser.step()

    return steps, facts


def main() -> None:
    torch.manual_seed(0)
    opponent, *rest = sys.argv[1:]
    kind, *numbers = rest
    problem = conv4(*map(int, numbers)) if kind == "conv4" else regression()
    steps, facts = ready(opponent, problem)
    serve(steps, warm=1, torch=torch.__version__, threads=torch.get_num_threads(), **facts)


if __name__ == "__main__":
    main()
