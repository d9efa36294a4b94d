"""Who may import whom, read from the sources; and what importing the package may not do."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "arml"
FILES = {path.relative_to(SOURCE): path for path in sorted(SOURCE.rglob("*.py"))}

# Each room may import itself and those of the floors below.
FLOORS = (
    {"results"},
    {"core", "report"},
    {"nn", "datasets", "tables"},
    {"algorithms", "tasks"},
    {"training"},
    {"experiment"},
    {"predict", "explain"},
    {"growth"},
    {"app"},
    {"cli"},
    {"__main__"},
)
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
PLAIN = {"results", "report"}
"""Run folders and reports: plain Python, so that reading results is quick and needs no device."""
VARIABLES = ("TypeVar", "ParamSpec")
ARRAYS = {"jax", "jaxlib", "equinox", "optax", "jaxtyping"}


def room(module: str) -> str:
    """`arml.nn.graphs` -> `nn`; the package itself is the empty string."""
    return [*module.split("."), ""][1]


STRING = re.compile(r"(arml(?:\.\w+)+)(?::\w+)?")
"""A module, or a function of one, that a string names for a later import."""


def imports(path: Path) -> Iterator[str]:
    """Every module that the file imports, wherever in the file it does so, also by a string."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and (named := STRING.fullmatch(str(node.value))):
            yield from {named[1]} & modules().keys()
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: import by the full name"
            # `from arml import files` names the module `arml.results.files`.
            yield from (
                f"{node.module}.{alias.name}" if node.module == "arml" else str(node.module)
                for alias in node.names
            )


def edges() -> set[tuple[str, str]]:
    """(importing room, imported room) for every import inside the package but its own facade."""
    return {
        (room(f"arml.{'.'.join(name.with_suffix('').parts)}"), room(module))
        for name, path in FILES.items()
        if name != Path("__init__.py")
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


def modules() -> dict[str, Path]:
    """The files of the package's modules, without the package itself."""
    return {
        ".".join(("arml", *name.with_suffix("").parts)).removesuffix(".__init__"): path
        for name, path in FILES.items()
        if name != Path("__init__.py")
    }


def test_no_modules_import_each_other_in_a_circle():
    names = modules()

    def found(name: str, path: Path) -> set[str]:
        whole = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        named = {
            f"{node.module}.{alias.name}" if f"{node.module}.{alias.name}" in names else node.module
            for node in whole
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        return (named | {*imports(path)}) & names.keys() - {name}

    TopologicalSorter({name: found(name, path) for name, path in names.items()}).prepare()


def test_modules_of_the_page_do_not_import_each_other_in_a_circle():
    imported = {
        path.name: set(re.findall(r'from "\./([^"]+)"', path.read_text(encoding="utf-8")))
        for path in (SOURCE / "app" / "page").glob("*.js")
    }
    assert imported["app.js"]
    TopologicalSorter(imported).prepare()


def bound(path: Path) -> set[str]:
    """The names that a module binds anywhere."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                found.add(node.name)
            case ast.Name(ctx=ast.Store()):
                found.add(node.id)
            case ast.alias():
                found.add(node.asname or node.name)
    return found


def test_a_public_name_has_one_meaning():
    """Type variables and the entries that every method has are the same everywhere."""
    places: dict[str, set[str]] = {}
    for module, path in modules().items():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            same = isinstance(node, ast.Assign) and ast.unparse(node.value).startswith(VARIABLES)
            names = {node.name} if isinstance(node, ast.FunctionDef | ast.ClassDef) else set()
            if isinstance(node, ast.Assign | ast.AnnAssign) and not same:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = {leaf.id for t in targets for leaf in ast.walk(t) if type(leaf) is ast.Name}
            for name in names - {"METHODS"}:
                places.setdefault(name, set()).add(module)
    several = {k: v for k, v in places.items() if len(v) > 1 and not k.startswith("_")}
    assert not several, "rename, import, or begin with an underscore where only one file uses it"


def test_scripts_import_names_that_exist():
    """Most scripts are too slow for the tests: a name that is gone would not be noticed."""
    root, names = SOURCE.parents[1], modules()
    scripts = [
        path
        for room in ("benchmarks", "docs", "starter", "study")
        for path in root.glob(f"{room}/*.py")
    ]
    assert len(scripts) > 20
    for path in scripts:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("arml."):
                assert node.module in names, f"{path} imports {node.module}"
                asked = {alias.name for alias in node.names}
                asked -= {name for name in asked if f"{node.module}.{name}" in names}
                odd = asked - bound(names[str(node.module)])
                assert not odd, f"{path} imports {odd} of {node.module}"


def test_the_mathematics_reads_no_files_and_knows_no_tasks():
    for importing, imported in edges():
        assert importing not in {"core", "nn", "algorithms"} or imported in {
            "core",
            "nn",
            "algorithms",
        }, f"arml.{importing} imports arml.{imported}"


def test_results_and_reports_import_no_arrays():
    for name, path in FILES.items():
        if name.parts[0] in PLAIN:
            odd = {module.split(".")[0] for module in imports(path)} & ARRAYS
            assert not odd, f"arml/{name} imports {odd}"


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


@pytest.mark.parametrize("module", ["arml", "arml.cli", "arml.results.folder", "arml.report.page"])
def test_a_light_import_loads_no_arrays_and_opens_no_socket(module):
    assert not loaded(module) & ARRAYS


def test_importing_an_experiment_touches_no_network_and_no_device():
    assert "jax" in loaded("arml.experiment.running")
