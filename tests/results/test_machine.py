"""Memory is used again where that is safe, and the user's own settings stay."""

import json
import os
import subprocess
import sys

import pytest

from arml.results import machine

PROGRAM = """
import json, os, sys
from arml.results.machine import malloc_settings, use_memory_again
print("begun")
sys.stdout.flush()
use_memory_again()
facts = os.getpid(), sys.argv[1:], os.environ.get("GLIBC_TUNABLES"), malloc_settings()
print(json.dumps(facts))
"""
OURS = ":".join(f"glibc.malloc.{name}={value}" for name, value in machine.MALLOC_SETTINGS.items())
OTHER, ARENAS = "glibc.rtld.optional_static_tls=512", "glibc.malloc.arena_max=1"


@pytest.mark.skipif(not machine._is_glibc(), reason="another C library")
@pytest.mark.parametrize(
    ("own", "after"),
    [
        ({}, OURS),
        ({"GLIBC_TUNABLES": OTHER}, f"{OTHER}:{OURS}"),
        ({"GLIBC_TUNABLES": ARENAS}, ARENAS),
        ({"ARML_MALLOC": "0"}, None),
    ],
)
def test_a_program_starts_again_with_settings_of_malloc(tmp_path, own, after):
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    names = ("GLIBC_TUNABLES", "ARML_MALLOC")
    environment = {k: v for k, v in os.environ.items() if k not in names} | own
    words = ["train", "", "a b", "--steps", "2"]

    def said(*command):
        process = subprocess.Popen(
            [sys.executable, *command, *words], env=environment, stdout=subprocess.PIPE, text=True
        )
        *begun, facts = process.communicate(timeout=60)[0].splitlines()
        pid, arguments, tunables, settings = json.loads(facts)
        assert (pid, arguments, process.returncode) == (process.pid, words, 0)
        assert settings == [one for one in (tunables or "").split(":") if "malloc" in one]
        return len(begun), tunables

    again = after is not None and after.endswith(OURS)
    assert said("-X", "utf8", script) == (1 + again, after)
    # Somebody else's program is left alone.
    assert said("-c", PROGRAM) == (1, own.get("GLIBC_TUNABLES"))
