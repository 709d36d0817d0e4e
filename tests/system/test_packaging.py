"""The distribution: what is in the wheel, what a wrong import does, what ``--help`` costs."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from joulefleet.shadowing import PACKAGES, shadowed_packages
from tests.conftest import REPOSITORY

HEAVY = {"torch", "pandas", "pyarrow", "paramiko", "ray", "torchvision", "matplotlib", "scipy", "sklearn"}


@pytest.fixture(scope="module")
def copied_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository's tracked kind of files, without environments and caches."""
    target = tmp_path_factory.mktemp("tree") / "joulefleet"
    caches = shutil.ignore_patterns(".venv*", ".git", "__pycache__", "*.egg-info", ".*_cache", "build")

    def skip(folder: str, names: list[str]) -> set[str]:
        results = {"runs", "emulations", "experiments"} if Path(folder) == REPOSITORY else set()
        return caches(folder, names) | results

    shutil.copytree(REPOSITORY, target, ignore=skip)
    return target


def test_the_wheel_holds_our_packages_and_nothing_else(copied_tree: Path, tmp_path: Path) -> None:
    subprocess.run(
        [
            sys.executable,
            "-m",
            "build",
            "--wheel",
            "--no-isolation",
            "--outdir",
            str(tmp_path),
            str(copied_tree),
        ],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("joulefleet-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names}
    info = {name for name in top if name.endswith(".dist-info")}
    assert len(info) == 1
    assert top - info == {*PACKAGES, "joulefleet_flower"}
    assert "joulefleet_flower/strategy.py" in names
    for needed in ("harness/report/templates/page.html", "harness/report/static/uPlot.iife.min.js"):
        assert needed in names
    for package in PACKAGES:
        assert f"{package}/py.typed" in names
        stubs = {str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / package).rglob("*.pyi")}
        assert stubs <= set(names), "front doors are read from their stubs"


def test_every_folder_of_code_is_a_package() -> None:
    """A forgotten __init__.py would silently leave a folder out of the wheel."""
    for package in PACKAGES:
        folders = {path.parent for path in (REPOSITORY / package).rglob("*.py")}
        assert {f for f in folders if not (f / "__init__.py").exists()} == set()


def lint_imports(tree: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("power/energy_cheat.py", "import harness", "Imports go one way"),
        ("traces/cheat.py", "from power import model", "Imports go one way"),
        ("joulefleet/cheat.py", "import power", "Imports go one way"),
        ("emulator/cheat.py", "from device_agents import session", "workloads only"),
        ("emulator/cheat.py", "from power.meters import streaming", "profiles, not instruments"),
        ("harness/evidence/cheat.py", "import harness.report.page", "Inside harness"),
        ("harness/probing/cheat.py", "import power.energy.index", "Others use what power lists"),
    ],
)
def test_a_wrong_import_breaks_the_contract(copied_tree: Path, module: str, line: str, contract: str) -> None:
    cheat = copied_tree / module
    cheat.write_text(line + "\n")
    try:
        result = lint_imports(copied_tree)
    finally:
        cheat.unlink()
    assert result.returncode != 0
    broken = [text for text in result.stdout.splitlines() if "BROKEN" in text]
    assert any(contract in text for text in broken), result.stdout


def test_help_imports_nothing_heavy() -> None:
    result = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "harness", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Usage: joulefleet" in result.stdout
    imported = {
        line.split("|")[-1].strip().split(".")[0] for line in result.stderr.splitlines() if "|" in line
    }
    assert "click" in imported
    assert imported & HEAVY == set()


def test_torchvision_is_imported_in_one_place_only() -> None:
    pattern = re.compile(r"^\s*(import|from) torchvision\b", re.MULTILINE)
    places = {
        str(path.relative_to(REPOSITORY))
        for folder in (*PACKAGES, "tests", "benchmarks", "examples")
        for path in (REPOSITORY / folder).rglob("*.py")
        if pattern.search(path.read_text())
    }
    assert places == {"emulator/data/vision.py"}


def test_nothing_shadows_our_packages() -> None:
    assert shadowed_packages() == {}


def test_a_shadowing_package_is_reported(tmp_path: Path) -> None:
    """Another project's ``traces`` earlier on the path: the command refuses and says which."""
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "__init__.py").write_text("")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{REPOSITORY}"}
    result = subprocess.run(
        [sys.executable, "-m", "harness", "runs", "list"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 3
    assert f"package 'traces' would be imported from {tmp_path}" in result.stderr
    assert "uninstall the other package" in result.stderr


def test_constraints_pin_every_dependency() -> None:
    import tomllib

    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    wanted = list(project["project"]["dependencies"])
    for extra, names in project["project"]["optional-dependencies"].items():
        # Flower has an environment of its own, whose versions it pins itself.
        wanted += [] if extra in ("all", "flower") else names
    wanted += project["dependency-groups"]["dev"]
    pinned = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (REPOSITORY / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    names = {re.split(r"[<>=!\[ ]", item)[0].lower() for item in wanted}
    assert names - pinned == set()


def locked(name: str) -> dict[str, tuple[str, list[str]]]:
    """Versions and hashes of a lock, by project."""
    lines = (REPOSITORY / "locks" / name).read_text().replace("\\\n", "").splitlines()
    pins = [line.split() for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", word) for _, *hashes in pins for word in hashes)
    return {pin.split("==")[0]: (pin.split("==")[1], hashes) for pin, *hashes in pins}


def test_locks_hold_every_package_of_an_install_as_constraints_pin_it() -> None:
    from tests.system.test_release import closure

    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    pins = dict(line.lower().replace("_", "-").split("==") for line in lines if "==" in line)
    base, torch, whole = (locked(f"{name}.txt") for name in ("base", "torch", "all"))
    for project, (version, hashes) in {**whole, **base, **torch}.items():
        assert pins[project] == version.lower()
        assert hashes
    needs = [Requirement(text) for text in distribution("joulefleet").requires or ()]
    wanted = closure([need.name for need in needs if need.marker is None])
    everything = closure([need.name for need in needs if 'extra == "flower"' not in str(need.marker)])
    assert plain(wanted) - {"joulefleet"} <= set(base)
    assert plain(everything) - {"joulefleet"} <= {*whole, *torch}
    assert {project: whole[project] for project in base} == base


def plain(names: set[str]) -> set[str]:
    return {re.sub(r"[-_.]+", "-", name).lower() for name in names}
