"""Packages of npm for tests: their files, fetched once by npm itself."""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("ARML_TEST_CACHE") or Path.home() / ".cache" / "arml-tests")
VERSIONS = {"onnxruntime-web": "1.30.0", "axe-core": "4.14.1"}


def package(name: str) -> Path:
    """The folder of a package; the test is skipped, and says why, where it cannot be had."""
    whole = f"{name}-{VERSIONS[name]}"
    folder = CACHE / whole
    if not folder.is_dir():
        if shutil.which("npm") is None:
            pytest.skip(f"no npm on the path to fetch {whole}; Debian has it as the package npm")
        CACHE.mkdir(parents=True, exist_ok=True)
        partial = CACHE / f"{whole}.{os.getpid()}"
        partial.mkdir()
        done = subprocess.run(
            ["npm", "pack", f"{name}@{VERSIONS[name]}", "--silent"],
            cwd=partial,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if done.returncode:
            shutil.rmtree(partial)
            pytest.skip(f"npm could not fetch {whole}: {done.stderr.strip()[-200:]}")
        with tarfile.open(partial / f"{whole}.tgz") as archive:
            archive.extractall(partial, filter="data")
        (partial / "package").rename(folder)
        shutil.rmtree(partial)
    return folder
