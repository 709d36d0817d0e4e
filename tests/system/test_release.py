"""What would be uploaded, in an environment that has the base dependencies and nothing else of ours."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import joulefleet
from tests.conftest import REPOSITORY
from tests.system.test_packaging import copied_tree

__all__ = ["copied_tree"]


def closure(names: list[str]) -> set[str]:
    """Distributions that these need, themselves included."""
    found: set[str] = set()
    while names:
        name = names.pop()
        if name in found:
            continue
        found.add(name)
        needs = (Requirement(text) for text in distribution(name).requires or ())
        names += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    return found


@pytest.fixture(autouse=True)
def no_other_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have a PYTHONPATH to a source tree."""
    monkeypatch.delenv("PYTHONPATH", raising=False)


@pytest.fixture(scope="module")
def built(copied_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An sdist, and a wheel made of it."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(copied_tree)]
    subprocess.run(command, check=True, capture_output=True)
    return out


@pytest.fixture(scope="module")
def empty(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and its base dependencies: links to those of this environment."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    (wheel,) = built.glob("*.whl")
    base = [Requirement(text) for text in distribution("joulefleet").requires or ()]
    for name in closure([need.name for need in base if need.marker is None]):
        installed = distribution(name)
        for top in {Path(str(file)).parts[0] for file in installed.files or ()} - {"..", "__pycache__"}:
            link = site / top
            if not link.is_symlink():
                link.symlink_to(Path(str(installed.locate_file(top))))
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(folder / "bin" / "python"),
        "install",
        "--no-deps",
    ]
    subprocess.run([*install, "--quiet", "--no-index", str(wheel)], check=True, capture_output=True)
    return folder


def use(empty: Path, folder: Path, *words: str, works: bool = True) -> str:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    command = [str(empty / "bin" / "joulefleet"), *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=150)
    assert (done.returncode == 0) is works, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def test_the_sdist_has_what_a_wheel_is_made_of_and_no_environments(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "THIRD-PARTY.md"} <= names
    assert not any(name.startswith((".venv", "runs/", "build/")) for name in names)
    assert sdist.stat().st_size < 20 << 20


def test_the_work_of_others_is_listed_with_its_licence(built: Path) -> None:
    """What looks foreign, minified or with a banner, has a line, and its licence is in the wheel."""
    page = (REPOSITORY / "THIRD-PARTY.md").read_text(encoding="utf-8")
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        code = [name for name in names if name.endswith((".js", ".css", ".c", ".h", ".ino"))]
        foreign = [name for name in code if ".min." in name or b"/*!" in archive.read(name)[:200]]
        texts = [archive.read(name) for name in names if ".dist-info/licenses/" in name]
        assert foreign
        for name in foreign:
            assert Path(name).name in page
            licence = Path(name.split(".", 1)[0] + ".LICENSE")
            assert archive.read(str(licence)) in texts
            assert f"]({licence})" in page
    for licence in REPOSITORY.glob("docs/**/*.LICENSE"):
        assert f"]({licence.relative_to(REPOSITORY)})" in page


def test_what_is_built_has_this_version(built: Path) -> None:
    assert {name.name for name in built.iterdir()} == {
        f"joulefleet-{joulefleet.__version__}.tar.gz",
        f"joulefleet-{joulefleet.__version__}-py3-none-any.whl",
    }


def test_the_base_install_measures_replays_and_reports_without_torch(empty: Path, tmp_path: Path) -> None:
    python = str(empty / "bin" / "python")
    torch = subprocess.run([python, "-c", "import torch"], capture_output=True, cwd=tmp_path)
    assert torch.returncode != 0, "this environment is to have none"
    ask = [python, "-c", "import harness; print(harness.__file__)"]
    where = subprocess.run(ask, capture_output=True, text=True, cwd=tmp_path)
    assert str(empty) in where.stdout, "the source tree is not used"
    assert re.search(r"version \d", use(empty, tmp_path, "--version"))
    assert "monsoon-lvpm" in use(empty, tmp_path, "meter", "list")
    emulated = subprocess.Popen(
        [str(empty / "bin" / "joulefleet"), "meter", "emulate", "ina219", "--seconds", "120"],
        cwd=tmp_path, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert emulated.stdout is not None
        found = re.search(r"/dev/\S+", emulated.stdout.readline())
        assert found is not None
        limits = ["--voltage", "5", "--voltage-max", "5.25", "--current-limit", "3"]
        meter = ["--kind", "ina219", "--port", found[0], *limits]
        use(empty, tmp_path, "meter", "record", *meter, "--seconds", "1", "--out", "first")
    finally:
        emulated.terminate()
        emulated.communicate(timeout=60)
    assert " J" in use(empty, tmp_path, "meter", "show", "first")
    use(empty, tmp_path, "traces", "synth", "--users", "3", "--days", "2", "--out", "people")
    assert "3" in use(empty, tmp_path, "traces", "stats", "people")
    said = use(
        empty, tmp_path, "emulate", "quick", "--set", "trainer.kind=surrogate", "--selector", "fedavg,oort"
    )
    assert "fedavg" in said
    (run,) = (tmp_path / "emulations").iterdir()
    use(empty, tmp_path, "report", str(run))
    assert (run / "report.html").stat().st_size > 10_000


def test_what_needs_an_extra_says_which(empty: Path, tmp_path: Path) -> None:
    """By the names of its packages: here is no clone, and no index is to be asked for joulefleet."""
    for words, needed in [
        (("emulate", "quick"), "'torch<2.14,>=2.6'"),
        (("demo", "--quick"), "'torch<2.14,>=2.6'"),
        (("lab", "--no-open"), "pip install 'starlette>=0.40' 'uvicorn>=0.30'"),
    ]:
        assert needed in use(empty, tmp_path, *words, works=False)
    assert not (tmp_path / "runs").exists(), "no run is made that cannot be played"
