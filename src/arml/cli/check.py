"""`arml check`: tests a plug-in or an installed package against the contract of all parts."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from tyro.conf import Positional

from arml.cli.console import parse


@dataclass(frozen=True)
class CheckOptions:
    """Check methods, networks, tasks and kinds of inputs against the contract of the package: for
    example, a finite gradient reaches every meta-parameter, a batch of tasks equals a loop over
    them, and a saved predictor gives the same answers. A method takes about a minute.

    The exit status is 1 if a check fails.
    """

    what: Positional[str]
    """A plug-in file (own.py): all of its parts are checked. Or the name of a registered method,
    network, kind of tasks or kind of inputs, also of an installed package."""


def check_command(arguments: Sequence[str]) -> int:
    options = parse(CheckOptions, arguments, prog="arml check")
    from arml.experiment.contract import QUERIES_NOTE
    from arml.predict.contract import check

    failed, said = 0, set[str]()
    for part, name in _parts(options.what):
        for subject, group in groupby(check(part, name), lambda finding: finding.subject):
            findings = list(group)
            again = 0
            for finding in findings:
                reason = finding.place or finding.message
                if reason in said and not finding.passed:
                    again += 1
                elif reason:
                    state = "excepted" if finding.passed else "FAILED"
                    state = "noted" if finding.check == QUERIES_NOTE else state
                    rule = finding.check.replace("_", " ")
                    where = f"{finding.place}: " if finding.place else ""
                    print(f"{subject}: {state}: {rule}: {where}{finding.message}", flush=True)
                    said |= {reason}
            failed += sum(not finding.passed for finding in findings)
            passed = sum(finding.passed and finding.check != QUERIES_NOTE for finding in findings)
            more = f", {again} more failed for a reason above" if again else ""
            checks = "check" if passed == 1 else "checks"
            print(f"{subject}: {passed} {checks} passed{more}", flush=True)
    return 1 if failed else 0


def _parts(what: str) -> Iterator[tuple[str, str]]:
    """The kind and the name of each part that a file registers, or of those with this name.
    **Raises** `ValueError` in one line if there is none."""
    from arml.core.inputs import INPUTS
    from arml.core.registry import Registry
    from arml.experiment.options import ALGORITHMS, NETWORKS, TASKS
    from arml.plugins.loading import announce

    file = Path(what).expanduser().resolve() if what.endswith(".py") else None
    parts: dict[str, Registry[Any]] = {"tasks": TASKS, "network": NETWORKS, "method": ALGORITHMS}
    parts["inputs"] = INPUTS
    before = {part: dict(registry) for part, registry in parts.items()}
    if file is not None:
        announce(file)
    found = False
    for part, registry in parts.items():
        for name, entry in registry.items():
            module = sys.modules.get(entry.options_class.__module__)
            # The file may register what another module defines, or have been loaded before.
            new = before[part].get(name) is not entry or getattr(module, "__file__", 0) == str(file)
            if name == what if file is None else new:
                found = True
                yield part, name
    if not found:
        raise ValueError(
            f"no method, network, tasks or inputs {what!r}: `arml list` names the methods"
            if file is None
            else f"{what} registers no method, network, tasks or inputs: call arml.register in it"
        )
