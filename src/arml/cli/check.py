"""`arml check`: the contract that every method keeps, run on a plug-in or an installed package."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from tyro.conf import Positional

from arml.cli.console import parse
from arml.cli.errors import UsageError


@dataclass(frozen=True)
class CheckOptions:
    """Check methods, networks and tasks against the contract that every method of the package
    keeps: a finite gradient reaches every meta-parameter, a task is learned alike whatever other
    tasks stand beside it, and so on. It takes about a minute for a method.

    The exit status is 1 if a check fails.
    """

    what: Positional[str]
    """A plug-in file (own.py), all of whose parts are checked; or the name of a registered method,
    network or kind of tasks, of an installed package too."""


def check_command(arguments: Sequence[str]) -> int:
    """Check a plug-in's methods, networks and tasks against the contract"""
    options = parse(CheckOptions, arguments, prog="arml check")
    from arml.experiment.contract import check

    failed = 0
    for part, name in named_parts(options.what):
        for subject, findings in groupby(check(part, name), lambda finding: finding.subject):
            passed = 0
            for finding in findings:
                passed += finding.passed
                if finding.message:
                    state = "excepted" if finding.passed else "FAILED"
                    said = f"{state}: {finding.check.replace('_', ' ')}: {finding.message}"
                    print(f"{subject}: {said}", flush=True)
                failed += not finding.passed
            print(f"{subject}: {passed} checks passed", flush=True)
    return 1 if failed else 0


def named_parts(what: str) -> Iterator[tuple[str, str]]:
    """The kind and the name of each part: those that a file registers, or the one of that name.

    **Raises** `UsageError` in one line if there is none.
    """
    from arml.core.registry import announce
    from arml.experiment.options import ALGORITHMS, NETWORKS, TASKS

    file = Path(what).expanduser().resolve() if what.endswith(".py") else None
    if file is not None:
        announce(file)
    found = False
    for part, registry in (("tasks", TASKS), ("network", NETWORKS), ("method", ALGORITHMS)):
        for name, entry in registry.items():
            module = sys.modules.get(entry.options_class.__module__)
            if name == what if file is None else getattr(module, "__file__", None) == str(file):
                found = True
                yield part, name
    if not found:
        raise UsageError(
            f"no method, network or tasks {what!r}: `arml list` names the methods"
            if file is None
            else f"{what} registers nothing: call arml.register in it"
        )
