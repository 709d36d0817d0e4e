from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from joulefleet.lazy import lazy_names, names_of_stub


def test_names_are_imported_when_used(monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("small_package")
    monkeypatch.setitem(sys.modules, "small_package", package)
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    package.__getattr__, package.__dir__, package.__all__ = lazy_names(  # type: ignore[method-assign, attr-defined]
        "small_package", {"colorsys": ("rgb_to_hls", "hls_to_rgb as back")}
    )
    assert dir(package) == ["back", "rgb_to_hls"]
    assert "colorsys" not in sys.modules
    assert package.rgb_to_hls(0, 0, 0) == (0, 0, 0)
    assert "rgb_to_hls" in vars(package)
    assert package.back.__name__ == "hls_to_rgb"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = package.nothing


def test_names_are_read_from_the_stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("small_package")
    package.__file__ = str(tmp_path / "__init__.py")
    monkeypatch.setitem(sys.modules, "small_package", package)
    (tmp_path / "__init__.pyi").write_text(
        "from colorsys import (\n    hls_to_rgb,\n    rgb_to_hls,\n)\nfrom math import pi\n\n__all__ = []\n"
    )
    get, listed, names = names_of_stub("small_package")
    assert listed() == names == ["hls_to_rgb", "pi", "rgb_to_hls"]
    assert get("pi") > 3
