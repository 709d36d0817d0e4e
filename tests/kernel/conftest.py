"""One guest for all tests of this folder, built if need be; only in a campaign."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import FULL_COUNTS, missing
from tests.kernel.bench import Bench, open_bench
from tests.kernel.image import Image, missing_programs, require_image


@pytest.fixture(scope="session")
def image() -> Image:
    """The guest's disks. Not in the ordinary suite: it must not need QEMU."""
    if not FULL_COUNTS:
        pytest.skip("needs a guest kernel: `make real-usb` runs it")
    if packages := missing_programs():
        missing(f"a guest kernel needs {' '.join(packages)}")
    return require_image()


@pytest.fixture(scope="session")
def bench(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """The running guest with all instruments plugged in."""
    folder: Path = tmp_path_factory.mktemp("guest")
    with open_bench(image, folder) as running:
        yield running
