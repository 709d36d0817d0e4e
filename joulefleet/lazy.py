"""Public names of a package that are imported when they are first used (PEP 562).

A front door lists many names, and some bring torch or scipy with them. They are listed once, in the
``__init__.pyi`` beside the package's ``__init__.py``, where editors and mypy find their types too.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a package, from the imports in its stub.

    Args:
        package: Its ``__name__``.
    """
    stub = Path(str(sys.modules[package].__file__)).with_suffix(".pyi")
    homes = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.parse(stub.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    listed = sorted(homes)

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, inside = homes[name]
        value = getattr(import_module(module), inside)
        setattr(sys.modules[package], name, value)  # the next use does not come here
        return value

    return get, lambda: listed, listed
