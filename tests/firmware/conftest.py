"""Where the firmware images are, if they are anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.firmware.images import VARIABLE, firmware_folder


@pytest.fixture(scope="session")
def images() -> Path:
    """The folder with the vendor's images. They are not ours to distribute, so CI has none either."""
    folder = firmware_folder()
    if folder is None:
        pytest.skip(f"{VARIABLE} is not set: needs the vendor's firmware images (docs/emulated-meters.md)")
    return folder
