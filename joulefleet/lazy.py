"""Public names of a package that are imported when they are first used (PEP 562).

A front door lists many names, and some bring torch or scipy with them. ``__init__.py`` says where each lives,
``__init__.pyi`` beside it gives editors and mypy the types.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_names(
    package: str, modules: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a package.

    Args:
        package: Its ``__name__``.
        modules: Module to its public names; ``"run as emulate"`` makes `run` public as `emulate`.
    """
    homes = {}
    for module, names in modules.items():
        for name in names:
            inside, _, outside = name.partition(" as ")
            homes[outside or inside] = (module, inside)
    listed = sorted(homes)

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, inside = homes[name]
        value = getattr(import_module(module), inside)
        setattr(sys.modules[package], name, value)  # the next use does not come here
        return value

    return get, lambda: listed, listed


def names_of_stub(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`lazy_names` of the imports in the package's ``__init__.pyi``, so that they are listed once only."""
    import ast

    stub = Path(str(sys.modules[package].__file__)).with_suffix(".pyi")
    modules: dict[str, tuple[str, ...]] = {}
    for node in ast.parse(stub.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            modules[node.module] = (*modules.get(node.module, ()), *map(ast.unparse, node.names))
    return lazy_names(package, modules)
