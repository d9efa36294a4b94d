"""Large pages are asked for where that is safe, and the user's own settings stay."""

import json
import os
import subprocess
import sys

import pytest

from arml.results import machine

PROGRAM = """
import json, os, sys
from arml.results.machine import ask_for_large_pages, large_pages
print("begun")
sys.stdout.flush()
ask_for_large_pages()
print(json.dumps([os.getpid(), sys.argv[1:], os.environ.get("GLIBC_TUNABLES"), large_pages()]))
"""
HUGE = "glibc.malloc.hugetlb=1"
PATHS = "glibc.rtld.optional_static_tls=512"


@pytest.mark.skipif(
    machine._pages() != "madvise" or not machine._glibc(),
    reason="large pages are not given on request",
)
@pytest.mark.parametrize(
    ("own", "after"),
    [
        ({}, HUGE),
        ({"GLIBC_TUNABLES": PATHS}, f"{PATHS}:{HUGE}"),
        ({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}, "glibc.malloc.hugetlb=0"),
        ({"GLIBC_TUNABLES": "glibc.malloc.arena_max=1"}, "glibc.malloc.arena_max=1"),
        ({"ARML_LARGE_PAGES": "0"}, None),
    ],
)
def test_a_program_starts_again_with_large_pages(tmp_path, own, after):
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    names = ("GLIBC_TUNABLES", "ARML_LARGE_PAGES")
    environment = {k: v for k, v in os.environ.items() if k not in names} | own
    words = ["train", "", "a b", "--steps", "2"]

    def said(*command):
        process = subprocess.Popen(
            [sys.executable, *command, *words], env=environment, stdout=subprocess.PIPE, text=True
        )
        *begun, facts = process.communicate(timeout=60)[0].splitlines()
        pid, arguments, tunables, large = json.loads(facts)
        assert (pid, arguments, process.returncode) == (process.pid, words, 0)
        assert large == (HUGE in (tunables or ""))
        return len(begun), tunables

    again = after is not None and after.endswith(HUGE)
    assert said("-X", "utf8", script) == (1 + again, after)
    # Somebody's own program is left alone.
    assert said("-c", PROGRAM) == (1, own.get("GLIBC_TUNABLES"))


def test_a_system_that_always_gives_large_pages_is_believed(tmp_path, monkeypatch):
    for text, large in (("[always] madvise never", True), ("always madvise [never]", False)):
        (tmp_path / "enabled").write_text(text)
        monkeypatch.setattr(machine, "_PAGES", tmp_path / "enabled")
        assert machine.large_pages() == large
    monkeypatch.setattr(machine, "_PAGES", tmp_path / "none")
    assert not machine.large_pages()
