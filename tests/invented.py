"""A run and an explanation with invented numbers, for tests of what is drawn from them."""

from pathlib import Path
from typing import Any

import numpy as np

from arml.results.files import append_metric, write_json
from arml.results.scores import Scores, summarise, write_scores

FAMILIES = ("line", "ripple <b>")


def write_run(
    out: Path, run: str, seed: int, values: np.ndarray, *, metric: str = "mse", tasks: str = "same"
) -> Path:
    """A run folder with these scores; tasks are of two families in turn."""
    folder = out / "runs" / run / f"seed-{seed}"
    families = np.arange(len(values)) % len(FAMILIES)
    result = {
        "format": 1,
        "recipe": run,
        "seed": seed,
        "split": "test",
        "metric": metric,
        **summarise(values, families, FAMILIES),
        "inner_steps": 5,
        "protocol": "10-shot",
        "commit": None,
        "versions": {},
        "device": "cpu",
        "seconds": 60.0,
        "parameters": 3,
        "steps": 100,
        "floor": 0.127 if metric == "mse" else None,
    }
    write_json(folder / "config.json", {"format": 1, "recipe": run, "experiment": {"seed": seed}})
    for step in (50, 100):
        append_metric(folder / "metrics.jsonl", {"step": step, "loss": 1.0 / step})
        scores = {"validation": 2.0 / step, "validation_ci95": 0.01}
        append_metric(folder / "metrics.jsonl", {"step": step, **scores})
    write_scores(folder / "scores.npz", Scores(values, families, tasks))
    write_json(folder / "result.json", result)
    return folder


def explanation(vertices: int = 4) -> dict[str, Any]:
    """What `explain` finds of a graph, with invented numbers."""
    noise = np.random.default_rng(0)
    weights = noise.dirichlet(np.ones(vertices), (2, 2))
    links = noise.uniform(0.2, 0.9, (vertices, vertices))
    links = (links + links.T) / 2 * (1 - np.eye(vertices))

    def effect(mean: float, p: float) -> dict[str, Any]:
        return {"mean": mean, "ci95": 0.01, "n": 100, "p": p, "adjusted": p}

    removed = [
        {"all": effect(0.1 * i, 0.001), **{f: effect(0.05, 0.5) for f in FAMILIES}}
        for i in range(vertices)
    ]
    return {
        "format": 1,
        "kind": "graph",
        "recipe": "r",
        "families": list(FAMILIES),
        "vertices": vertices,
        "prototype_names": ["P0", "P1"],
        "tasks": 100,
        "example": {f: w.tolist() for f, w in zip(FAMILIES, weights, strict=True)},
        "average": {
            f: {"mean": w.tolist(), "sd": (0 * w).tolist()}
            for f, w in zip(FAMILIES, weights, strict=True)
        },
        "vertex_links": links.tolist(),
        "threshold": float(np.median(links[np.triu_indices(vertices, 1)])),
        "vertex_links_reach_tasks": True,
        "vertex_links_effect": 0.05,
        "interventions": {
            "tasks": 100,
            "metric": "mse",
            "vertices": removed,
            "links": {"all": effect(0.0, 1.0), **{f: effect(0.0, 1.0) for f in FAMILIES}},
        },
    }
