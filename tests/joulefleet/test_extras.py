"""Extras are named alike everywhere, and installed from the clone: no package index has joulefleet."""

import re
import tomllib

from harness.cli.doctor import EXTRAS
from joulefleet.install_hint import install_hint
from tests.conftest import REPOSITORY

DECLARED: dict[str, list[str]] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]
TEXTS = [
    path
    for folder in (
        "docs",
        "examples",
        "joulefleet",
        "harness",
        "emulator",
        "device_agents",
        "power",
        "traces",
        "joulefleet_flower",
    )
    for path in (REPOSITORY / folder).rglob("*")
    if path.suffix in (".md", ".py", ".toml", ".txt")
] + [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md"]


def test_what_is_to_be_typed() -> None:
    assert install_hint("train").endswith(": pip install -c constraints.txt -e '.[train]'")
    assert install_hint().endswith(" -e '.'")


def test_all_is_all_of_them_and_the_doctor_knows_each() -> None:
    (everything,) = DECLARED["all"]
    # Flower has an environment of its own, whose versions do not go together with those of the others.
    extras = set(DECLARED) - {"all", "flower"}
    assert set(everything.removeprefix("joulefleet[").removesuffix("]").split(",")) == extras
    assert {name: set(packages) for name, packages in EXTRAS.items()} == {
        name: {re.split(r"[<>=]", item)[0] for item in DECLARED[name]} for name in extras
    }
    adr = (REPOSITORY / "docs" / "decisions" / "0003-dependencies.md").read_text()
    assert {name for name in {*extras, "flower"} if f"`{name}`" not in adr} == set()


def test_nothing_tells_anybody_to_install_a_strangers_package() -> None:
    bare = re.compile(r"pip install[^\n`]*\bjoulefleet\b(?!'s)")
    found = [(path, match[0]) for path in TEXTS if (match := bare.search(path.read_text()))]
    assert found == []
    named = {
        extra
        for path in TEXTS
        for match in re.findall(r"""install_hint\("(\w+)"\)|-e '\.\[([\w,]+)\]'""", path.read_text())
        for extra in "".join(match).split(",")
    }
    assert {"train", "scale", "tracking", "monsoon"} <= named <= set(DECLARED)
