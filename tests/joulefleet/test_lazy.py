from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
import small_package

assert dir(small_package) == ["back", "rgb_to_hls"] == small_package.__all__
assert "colorsys" not in sys.modules
assert small_package.rgb_to_hls(0, 0, 0) == (0, 0, 0)
assert "rgb_to_hls" in vars(small_package)
assert small_package.back.__name__ == "hls_to_rgb"
try:
    small_package.nothing
except AttributeError as error:
    print(error)
"""


def test_names_of_a_stub_are_imported_when_used(tmp_path: Path) -> None:
    package = tmp_path / "small_package"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from joulefleet.lazy import lazy_names\n__getattr__, __dir__, __all__ = lazy_names(__name__)\n"
    )
    (package / "__init__.pyi").write_text(
        "from colorsys import hls_to_rgb as back\nfrom colorsys import rgb_to_hls\n"
    )
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{PROGRAM}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "module 'small_package' has no attribute 'nothing'\n", done.stderr
