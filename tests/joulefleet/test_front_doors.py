"""Every package has a public face: listed, typed, cheap to import, and the only one that others use."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

import pytest

from joulefleet.shadowing import PACKAGES
from tests.conftest import REPOSITORY

STUBS = sorted(path for package in PACKAGES for path in (REPOSITORY / package).rglob("__init__.pyi"))
HEAVY = ("torch", "pandas", "pyarrow", "paramiko", "ray", "scipy", "matplotlib", "onnxruntime", "sklearn")
MOST_NAMES = 25
CONTRACTS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
PUBLIC_MODULES = {
    line.split(" -> ")[1]
    for found in CONTRACTS
    if found["type"] == "protected"
    for line in found["ignore_imports"]
}
"""What other packages may import: doors of folders, and modules that are public as a whole."""


def dotted(stub: Path) -> str:
    return ".".join(stub.parent.relative_to(REPOSITORY).parts)


@pytest.mark.parametrize("stub", STUBS, ids=dotted)
def test_names_of_a_front_door(stub: Path) -> None:
    """The stub, ``__all__`` and ``dir()`` list the same names; each is there and explains itself."""
    module = importlib.import_module(dotted(stub))
    tree = ast.parse(stub.read_text(encoding="utf-8"))
    typed = {a.asname or a.name for node in tree.body if isinstance(node, ast.ImportFrom) for a in node.names}
    assert set(module.__all__) == typed
    assert sorted(module.__all__) == dir(module)
    for name in module.__all__:
        value = getattr(module, name)
        explains = isinstance(value, type | FunctionType)
        assert not explains or value.__doc__, f"{name} has no docstring"


def test_every_package_has_one_and_it_is_short() -> None:
    doors = {dotted(stub): stub for stub in STUBS}
    for package in PACKAGES:
        assert package in doors
        assert len(importlib.import_module(package).__all__) <= MOST_NAMES


@pytest.mark.parametrize("package", PACKAGES)
def test_importing_a_package_imports_nothing_heavy(package: str) -> None:
    code = f"import sys, {package}; print(*sorted({{n.split('.')[0] for n in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & set(HEAVY)


def programs() -> Iterator[tuple[str, str]]:
    """Code that users read: examples, benchmarks, and what the pages show."""
    for folder in ("examples", "benchmarks"):
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            yield str(path.relative_to(REPOSITORY)), path.read_text(encoding="utf-8")
    for page in sorted([REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")]):
        for i, block in enumerate(
            re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        ):
            yield f"{page.relative_to(REPOSITORY)}:{i}", block


PROGRAMS = dict(programs())


@pytest.mark.parametrize("where", PROGRAMS)
def test_examples_use_public_names(where: str) -> None:
    """Of the common ground all is public: it is what selectors, readers and meters of one's own build on."""
    for node in ast.walk(ast.parse(PROGRAMS[where])):
        module = node.module if isinstance(node, ast.ImportFrom) else None
        if module is None or module.split(".")[0] not in set(PACKAGES) - {"joulefleet"}:
            continue
        assert module in PUBLIC_MODULES | set(PACKAGES), f"{module} is internal"
        names = {alias.name for alias in node.names}
        listed = set(getattr(importlib.import_module(module), "__all__", names))
        submodules = {name for name in names if f"{module}.{name}" in PUBLIC_MODULES}
        assert names - submodules <= listed, f"not all listed in {module}"
