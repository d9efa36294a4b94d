"""The documentation's code runs, and its pages are those that the sources make."""

import re
import subprocess
import sys
from pathlib import Path

import jax

from arml import algorithms

ROOT = Path(__file__).parents[1]


def test_the_tutorial_runs(tmp_path, monkeypatch):
    text = (ROOT / "docs" / "write-your-own-method.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    monkeypatch.chdir(tmp_path)
    before = {name: set(getattr(algorithms, name)) for name in ("ALGORITHMS", "OPTIONS")}
    try:
        with jax.numpy_dtype_promotion("standard"):
            exec(compile(code, "write-your-own-method.md", "exec"), {"__name__": "tutorial"})
    finally:
        for name, known in before.items():
            registry = getattr(algorithms, name)
            for added in set(registry) - known:
                del registry[added]


def test_the_pages_of_the_methods_are_those_of_their_docstrings():
    done = subprocess.run(
        [sys.executable, "docs/make_pages.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
