"""One type per concept: a public class name means one thing in the whole product."""

from __future__ import annotations

import ast
from collections import defaultdict

from joulefleet.shadowing import PACKAGES
from tests.conftest import REPOSITORY

SAME_NAME: dict[str, str] = {}
"""Names that may occur twice, with why."""


def test_no_public_class_name_is_used_twice() -> None:
    places = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(str(path.relative_to(REPOSITORY)))
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert set(twice) == set(SAME_NAME), {n: p for n, p in twice.items() if n not in SAME_NAME}
