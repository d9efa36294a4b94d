"""Who may import whom, read from the sources; and what importing the package may not do."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "arml"
FILES = {path.relative_to(SOURCE): path for path in sorted(SOURCE.rglob("*.py"))}

# Each room may import itself and those of the floors below.
FLOORS = (
    {"results", "plugins"},
    {"core", "report"},
    {"nn", "datasets"},
    {"algorithms", "tasks"},
    {"training"},
    {"experiment"},
    {"predict", "explain"},
    {"growth", "photographs", "tables"},
    {"texts"},
    {"app"},
    {"cli"},
    {"__main__"},
)
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
ARRAYS = {"jax", "jaxlib", "equinox", "optax", "jaxtyping"}
MODULES = {
    ".".join(("arml", *name.with_suffix("").parts)).removesuffix(".__init__"): path
    for name, path in FILES.items()
    if name != Path("__init__.py")
}
"""The files of the package's modules, without the package itself."""
STRING = re.compile(r"(arml(?:\.\w+)+)(?::\w+)?")
"""A module, or a function of one, that a string names for a later import."""


def room(module: str) -> str:
    """`arml.nn.graphs` -> `nn`; the package itself is the empty string."""
    return [*module.split("."), ""][1]


def imports(path: Path) -> Iterator[str]:
    """Every module that the file imports, wherever in the file it does so, also by a string."""
    own = SOURCE / "core" / "inputs.py"  # names kinds of inputs as entry points name others
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and (named := STRING.fullmatch(str(node.value))):
            if path == own:
                continue
            yield from {named[1]} & MODULES.keys()
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: import by the full name"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                # `from arml import load` names no module: the package's own files do not do so.
                yield whole if whole in MODULES or node.module == "arml" else str(node.module)


def edges() -> set[tuple[str, str]]:
    """(importing room, imported room) for every import inside the package but its own facade."""
    return {
        (room(name), room(module))
        for name, path in MODULES.items()
        for module in imports(path)
        if module.split(".")[0] == "arml" and module != "arml.__version__"
    }


def test_the_package_is_rooms():
    assert {name.name for name in FILES if len(name.parts) == 1} == {"__init__.py", "__main__.py"}
    assert {name.parts[0] for name in FILES if len(name.parts) > 1} <= set(FLOOR)


def test_a_room_imports_only_those_of_lower_floors():
    for importing, imported in edges():
        assert importing == imported or FLOOR[importing] > FLOOR[imported], (
            f"arml.{importing} imports arml.{imported}"
        )


def test_no_modules_import_each_other_in_a_circle():
    found = {name: {*imports(path)} & MODULES.keys() - {name} for name, path in MODULES.items()}
    TopologicalSorter(found).prepare()


def test_scripts_import_names_that_exist():
    """Most scripts are too slow for the tests: a name that is gone would not be noticed."""
    rooms = ("benchmarks", "docs", "starter")  # the types of `study` are checked
    scripts = [path for room in rooms for path in SOURCE.parents[1].glob(f"{room}/*.py")]
    assert len(scripts) > 20
    for path in scripts:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "arml":
                exec(compile(ast.unparse(node), path, "exec"), {})


def test_the_mathematics_reads_no_files_and_knows_no_tasks():
    mathematics = {"core", "nn", "algorithms"}
    for importing, imported in edges():
        assert importing not in mathematics or imported in {*mathematics, "plugins"}, (
            f"arml.{importing} imports arml.{imported}"
        )


QUIET = """
import sys

def refuse(event, _):
    if event.startswith("socket."):
        raise AssertionError(f"the import did {{event}}")

sys.addaudithook(refuse)
import {module}
if "jax" in sys.modules:
    import jax._src.xla_bridge as bridge
    assert not bridge._backends, "the import touched a device"
print(*sorted({{name.split(".")[0] for name in sys.modules}}))
"""


def loaded(module: str) -> set[str]:
    """The packages that a fresh interpreter has after importing `module`."""
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, "-c", QUIET.format(module=module)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_light_imports_load_no_arrays_and_open_no_socket():
    """Reading results and reports is quick, and needs no device; so does the help."""
    plain = [name for name in MODULES if room(name) in ("results", "report")]
    assert not loaded(", ".join(["arml.cli", *plain])) & ARRAYS


def test_importing_an_experiment_touches_no_network_and_no_device():
    assert "jax" in loaded("arml.experiment.running")
