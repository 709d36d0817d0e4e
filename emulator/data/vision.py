"""The only place that imports torchvision.

Its wheel is built against CUDA. With a CPU build of torch the compiled operators do not load, and the
import fails, because torchvision registers fake kernels for ``torchvision::nms`` and ``torchvision::qnms``,
which then nobody has declared. joulefleet uses its data sets and transforms, never its operators, so the two
schemas are declared here when they are absent; calling them still fails, as it should.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import cast

from joulefleet.errors import MissingExtra
from joulefleet.install_hint import install_hint

_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


@cache
def torchvision() -> ModuleType:
    """The torchvision package, importable on CPU-only machines too.

    Raises:
        MissingExtra: torch or torchvision is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise _missing() from error
    # Loads the operators where the wheel fits; the declarations below must not come first there.
    _load_compiled_operators()
    for name, schema in _SCHEMAS.items():
        if not hasattr(torch.ops.torchvision, name):
            library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
            library.define(schema)  # type: ignore[no-untyped-call]
            _declared.append(library)  # a declaration lives as long as its library object
    try:
        import torchvision as module
        import torchvision.datasets
        import torchvision.models
        import torchvision.transforms
    except ImportError as error:
        raise _missing() from error
    return cast("ModuleType", module)


_declared: list[object] = []


def _load_compiled_operators() -> None:
    """Load torchvision's shared library if it can be loaded; a CUDA one on a CPU machine cannot."""
    from importlib.util import find_spec
    from pathlib import Path

    import torch

    spec = find_spec("torchvision")
    if spec is None or spec.origin is None:
        return
    for library in Path(spec.origin).parent.glob("_C*.so"):
        try:
            torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
        except OSError:
            continue


def _missing() -> MissingExtra:
    return MissingExtra("torch and torchvision are not installed", hint=install_hint("train"))
