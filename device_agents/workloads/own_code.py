"""Code of the user's own: one file, run as a module. What goes wrong in it names the file and the line.

Shipped to devices with the rest of this package. On the host only `emulator.own_code` takes files from users.
"""

from __future__ import annotations

import hashlib
import importlib
import linecache
import re
import sys
import traceback
from dataclasses import dataclass
from types import ModuleType

_loaded: dict[str, ModuleType] = {}


@dataclass(frozen=True)
class OwnCode:
    """A file with code, as it was read: a task that carries it can be trained in any process.

    Attributes:
        file: As the user named it.
        source: Its text.
        module: Where it is installed, if it comes from a package; then that is imported.
    """

    file: str
    source: str
    module: str = ""

    @property
    def sha256(self) -> str:
        """Hash of the text."""
        return hashlib.sha256(self.source.encode()).hexdigest()


def module_of(code: OwnCode) -> ModuleType:
    """The module that the code makes; run once per process.

    Raises:
        Exception: Whatever the code raises; `blame` says where.
    """
    key = code.module or f"{code.file} {code.sha256}"  # a copy elsewhere is blamed by its own name
    if key not in _loaded:
        _loaded[key] = importlib.import_module(code.module) if code.module else _run(code)
    return _loaded[key]


def _run(code: OwnCode) -> ModuleType:
    stem = re.sub(r"\W", "_", re.split(r"[/\\]", code.file)[-1].rsplit(".", 1)[0])
    module = ModuleType(f"joulefleet_own_{stem}_{code.sha256[:8]}")
    module.__file__ = code.file
    # Where the file itself is not at hand, tracebacks still show its lines.
    linecache.cache[code.file] = (len(code.source), None, code.source.splitlines(keepends=True), code.file)
    sys.modules[module.__name__] = module  # dataclasses and pickle look a class's module up by its name
    try:
        exec(compile(code.source, code.file, "exec"), module.__dict__)  # noqa: S102 - what the file is for
    except BaseException:
        del sys.modules[module.__name__]
        raise
    return module


def blame(code: OwnCode, error: BaseException) -> str:
    """What went wrong, and in which line of the user's file if any was involved."""
    line = None
    if isinstance(error, SyntaxError) and error.filename == code.file:
        line = error.lineno
    else:
        files = {code.file, getattr(sys.modules.get(code.module), "__file__", code.file)}
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
        if frames:
            line = frames[-1].lineno
    what = error.msg if isinstance(error, SyntaxError) else str(error).strip()
    where = code.file if line is None else f"{code.file}:{line}"
    return f"{where}: {type(error).__name__}: {what}" if what else f"{where}: {type(error).__name__}"
