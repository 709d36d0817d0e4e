"""Image data sets that are folders with one folder per class: CINIC-10 and TinyImageNet."""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from emulator.data.model import DataSet, Split, halves, image_data_set
from emulator.data.sources import DataSource
from joulefleet.budgets import IMAGE_BYTES
from joulefleet.errors import DataQualityError, MissingExtra, StorageError
from joulefleet.install_hint import install_hint

_IMAGE = re.compile(r"\.(png|jpe?g)$", re.IGNORECASE)


def cinic10(source: DataSource) -> DataSet:
    """90,000 images in each of train, valid and test (Darlow et al. 2018)."""
    root = _Tree(source.require("CINIC-10", "CINIC-10", "cinic-10", "cinic10"))
    train, validation, test = (_by_class(root, part, 32) for part in ("train", "valid", "test"))
    return image_data_set("cinic10", 10, train, validation, test, note="CINIC-10 (Darlow et al. 2018), MIT")


def tinyimagenet(source: DataSource) -> DataSet:
    """200 classes; the published test images have no labels, so validation and test share ``val``."""
    path = source.require("TinyImageNet", "tiny-imagenet-200", "tiny-imagenet", "tiny-imagenet-200.zip")
    archives = sorted(path.glob("*.zip")) if path.is_dir() else []
    root = _Tree(archives[0] if archives else path)
    train = _by_class(root, "train", 64)
    annotations = root.find("val/val_annotations.txt")
    if annotations is None:
        held_out = _by_class(root, "val", 64)
    else:
        held_out = _annotated(root, annotations, root.classes("train"))
    validation, test = halves(held_out, source.rng("tinyimagenet"))
    note = "TinyImageNet (Stanford CS231n; ImageNet's terms: non-commercial research)"
    return image_data_set("tinyimagenet", len(root.classes("train")), train, validation, test, note)


class _Tree:
    """Files below a folder or inside a zip archive, by their path from there.

    An archive may have one folder around everything; it is left out.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._archive: zipfile.ZipFile | None = None
        try:
            if path.is_dir():
                names = {str(file.relative_to(path)): str(file) for file in path.rglob("*") if file.is_file()}
            else:
                self._archive = zipfile.ZipFile(path)
                names = {name: name for name in self._archive.namelist() if not name.endswith("/")}
        except (OSError, zipfile.BadZipFile) as error:
            raise StorageError(f"{path}: not readable ({error})", hint="fetch it again") from error
        wrapper = _common_folder(list(names))
        self._files = {name.removeprefix(wrapper): place for name, place in sorted(names.items())}

    def find(self, name: str) -> str | None:
        """The file's content as text, if it is there."""
        return self.read(name).decode() if name in self._files else None

    def read(self, name: str) -> bytes:
        """One file."""
        if self._archive is None:
            return Path(self._files[name]).read_bytes()
        with self._archive.open(self._files[name]) as file:
            data = file.read(IMAGE_BYTES + 1)
        if len(data) > IMAGE_BYTES:
            raise ValueError(f"more than {IMAGE_BYTES >> 20} MB unpacked")
        return data

    def images(self, part: str) -> Iterator[str]:
        """Every image of a part, in the order of their paths."""
        return (name for name in self._files if name.startswith(f"{part}/") and _IMAGE.search(name))

    def classes(self, part: str) -> list[str]:
        """The names of a part's class folders, sorted: their order numbers the classes."""
        return sorted({name.split("/")[1] for name in self.images(part)})


def _by_class(root: _Tree, part: str, pixels: int) -> Split:
    names = list(root.images(part))
    numbers = {name: number for number, name in enumerate(root.classes(part))}
    labels = np.array([numbers[name.split("/")[1]] for name in names], np.int64)
    return Split(_decoded(root, part, names, pixels), labels)


def _annotated(root: _Tree, annotations: str, classes: list[str]) -> Split:
    """TinyImageNet's own form: all images in one folder, a table says which class each is."""
    table = dict(line.split("\t")[:2] for line in annotations.splitlines() if line)
    names = list(root.images("val"))
    try:
        labels = [classes.index(table[name.rsplit("/", 1)[1]]) for name in names]
    except (KeyError, ValueError) as error:
        raise DataQualityError(
            f"{root.path}: val_annotations.txt does not fit the images ({error})"
        ) from error
    return Split(_decoded(root, "val", names, 64), np.array(labels, np.int64))


def _decoded(root: _Tree, part: str, names: list[str], pixels: int) -> NDArray[np.uint8]:
    """Images as (samples, 3, pixels, pixels)."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtra("reading images needs Pillow", hint=install_hint("train")) from error
    if not names:
        raise StorageError(f"{root.path}: no images in {part!r}", hint="is it the data set's own folder?")
    images = np.empty((len(names), 3, pixels, pixels), np.uint8)
    for number, name in enumerate(names):
        try:
            with Image.open(io.BytesIO(root.read(name))) as image:
                images[number] = np.moveaxis(np.asarray(image.convert("RGB")), -1, 0)
        except (OSError, ValueError, zipfile.BadZipFile, zlib.error, RuntimeError) as error:
            raise DataQualityError(
                f"{root.path}: {name} is not an image of {pixels} x {pixels} ({error})", hint="fetch it again"
            ) from error
    return images


def _common_folder(names: list[str]) -> str:
    """``top/`` if every path starts with it."""
    tops = {name.split("/")[0] for name in names}
    return f"{tops.pop()}/" if len(tops) == 1 and "/" in names[0] else ""
