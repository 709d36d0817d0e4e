"""What a device has: run there with ``python3 -``, prints one JSON object. Standard library, Python 3.6 on.

It is the first thing that runs on an unknown device, so it must not fail on an old Python: no annotations
that need a newer one, no f-strings with nested quotes, nothing but `import` and `print`.
"""

import json
import os
import platform
import shutil
import sys
from typing import Optional

MODULES = ("numpy", "torch", "onnxruntime")


def module_version(name: str) -> Optional[str]:
    """Version of an installed package, without importing it: importing torch takes seconds on a phone."""
    try:
        from importlib.metadata import version
    except ImportError:  # before Python 3.8
        return None
    try:
        return version(name)
    except Exception:
        return None


def free_bytes(path: str) -> Optional[int]:
    """Free disk space where our files go."""
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return None


def main() -> None:
    """Print the report."""
    home = os.path.expanduser("~")  # noqa: PTH111 - the oldest spelling, for the oldest Python
    prefix = os.environ.get("PREFIX", "")
    report = {
        "python": sys.executable,
        "version": list(sys.version_info[:3]),
        "machine": platform.machine(),
        "system": platform.system(),
        "modules": {name: module_version(name) for name in MODULES},
        "venv": __import__("importlib.util", fromlist=["util"]).find_spec("ensurepip") is not None,
        "home": home,
        "free_bytes": free_bytes(home),
        "termux": "com.termux" in prefix,
        "wake_lock": shutil.which("termux-wake-lock") is not None,
        "cpus": os.cpu_count(),
    }
    print(json.dumps(report))  # noqa: T201 - its answer


if __name__ == "__main__":
    main()
