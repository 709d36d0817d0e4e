"""Next-character prediction on Shakespeare (a device per speaker) and WikiText (a device per article)."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from emulator.data.model import DataSet, Split
from emulator.data.sources import DataSource
from joulefleet.errors import DataQualityError, StorageError

LENGTH = 80
"""Characters in, one out: LEAF's Shakespeare task (Caldas et al. 2018)."""

ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""LEAF's 80 characters; any other is counted as the last one, which the plays do not use."""

CLASSES = 80
_STRIDE = 20  # characters between the starts of two samples; LEAF's 1 would repeat each character 80 times
_TRAIN, _VALIDATION = 0.8, 0.1  # shares of each speaker's lines, in their order; the rest is for testing

_SPEAKER = re.compile(r"(?:^|\n\n)([A-Z][^\n:]*):\n")
_ARTICLE = re.compile(r"(?m)^ = [^=].* = $")


def shakespeare(source: DataSource) -> DataSet:
    """Plays by speaker; the last lines of each speaker are held out."""
    path = source.require("Shakespeare", "text/tinyshakespeare.txt", "tinyshakespeare.txt", "shakespeare.txt")
    speeches: dict[str, list[str]] = {}
    pieces = _SPEAKER.split(_read(path))[1:]
    for speaker, words in zip(pieces[::2], pieces[1::2], strict=True):
        speeches.setdefault(speaker, []).append(words)
    groups = ["\n".join(words) for words in speeches.values()]
    return _divided("shakespeare", groups, path, note=f"{path.name}; public domain")


def wikitext(source: DataSource) -> DataSet:
    """WikiText-2 by article; its own validation and test files where there is a file to train on as well."""
    train = source.find("text/wikitext2-train.txt", "wikitext-2/wiki.train.tokens")
    note = "WikiText-2 (Merity et al. 2017), CC BY-SA"
    if train is None:
        valid = source.require("WikiText-2", "text/wikitext2-valid.txt", "wikitext-2/wiki.valid.tokens")
        return _divided("wikitext", _articles(valid), valid, note=f"{note}; its validation file only")
    valid, test = (
        source.require("WikiText-2", f"text/wikitext2-{part}.txt", f"wikitext-2/wiki.{part}.tokens")
        for part in ("valid", "test")
    )
    parts = [_windows(_articles(path)) for path in (train, valid, test)]
    return DataSet("wikitext", CLASSES, parts[0], parts[1], parts[2], note=note)


def encode(text: str) -> NDArray[np.int64]:
    """Characters as numbers below `CLASSES`."""
    table = {character: number for number, character in enumerate(ALPHABET)}
    return np.array([table.get(character, CLASSES - 1) for character in text], np.int64)


def _articles(path: Path) -> list[str]:
    return _ARTICLE.split(_read(path))[1:]


def _divided(name: str, groups: list[str], path: Path, *, note: str) -> DataSet:
    cut = [(round(_TRAIN * len(text)), round((_TRAIN + _VALIDATION) * len(text))) for text in groups]
    pairs = list(zip(groups, cut, strict=True))
    train = _windows([text[:a] for text, (a, _) in pairs])
    if not len(train):
        raise DataQualityError(
            f"{path}: no text longer than {LENGTH} characters", hint="is it the right file?"
        )
    validation, test = (
        _windows([text[a:b] for text, (a, b) in pairs]),
        _windows([t[b:] for t, (_, b) in pairs]),
    )
    return DataSet(name, CLASSES, train, validation, test, note=note)


def _windows(groups: list[str]) -> Split:
    """Samples of each group's text; groups too short for one are left out, the others numbered anew."""
    windows, owners, number = [], [], 0
    for text in groups:
        if len(text) > LENGTH:
            found = np.lib.stride_tricks.sliding_window_view(encode(text), LENGTH + 1)[::_STRIDE]
            windows.append(found)
            owners.append(np.full(len(found), number))
            number += 1
    if not windows:
        return Split(np.empty((0, LENGTH), np.int64), np.empty(0, np.int64), np.empty(0, np.int64))
    joined = np.concatenate(windows)
    return Split(joined[:, :-1].copy(), joined[:, -1].copy(), np.concatenate(owners))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"{path}: not readable as text ({error})") from error
