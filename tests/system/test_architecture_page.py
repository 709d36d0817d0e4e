"""`docs/architecture.md` names what is there, and every folder and top module is named."""

import re

import pytest

from tests.conftest import REPOSITORY

PACKAGES = ("joulefleet", "power", "traces", "device_agents", "emulator", "harness")
PAGE = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
NAMED = set(re.findall(rf"`((?:{'|'.join(PACKAGES)})/[^`\s]*)`", PAGE))


def test_every_path_on_the_page_is_there() -> None:
    missing = sorted(path for path in NAMED if not (REPOSITORY / path).exists())
    assert not missing


@pytest.mark.parametrize("package", PACKAGES)
def test_every_folder_of_a_package_is_on_the_page(package: str) -> None:
    inits = (REPOSITORY / package).rglob("__init__.py")
    folders = {f"{init.parent.relative_to(REPOSITORY).as_posix()}/" for init in inits}
    assert not sorted(folders - NAMED)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_at_the_top_of_a_package_is_on_the_page(package: str) -> None:
    modules = {f"{package}/{path.name}" for path in (REPOSITORY / package).glob("*.py")}
    assert not sorted(module for module in modules - NAMED if "__" not in module)


def test_the_six_walks_are_walked() -> None:
    walks = PAGE.split("\n## Six walks\n")[1].split("\n## ")[0]
    assert walks.count("\n### ") == 6
    assert all(".py`" in walk for walk in walks.split("\n### ")[1:])
