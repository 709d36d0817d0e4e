"""Closed configuration: an unknown key is an error that names its path and the nearest known key."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from joulefleet.budgets import CONFIG_BYTES, OverBudget, parse_toml_data, read_bounded
from joulefleet.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic_core import ErrorDetails

M = TypeVar("M", bound="ClosedModel")


class ClosedModel(BaseModel):
    """Base of everything that is read from a file: frozen, no unknown keys, no NaN, no silent casts."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False, allow_inf_nan=False)

    LATER: ClassVar[frozenset[str]] = frozenset()
    """Fields that joined without a new version. One with the value that it had before it existed is not part
    of a hash, so that what was written then keeps its hash. That value is its default, or in `BEFORE`."""
    BEFORE: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Fields of `LATER` whose default is another one now."""

    @classmethod
    def before(cls, name: str) -> Any:
        """What a field of `LATER` was before it existed."""
        return cls.BEFORE.get(name, cls.model_fields[name].default)


SPAN_S = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
"""Units of a stretch of time that people write."""
SPAN = r"^(\d{1,9}(\.\d{1,3})?) ?(s|min|h|d)$"


def span_s(text: object) -> float | None:
    """Seconds of a stretch of time such as ``30 min``; ``None`` if it is none."""
    match = re.search(SPAN, text) if isinstance(text, str) else None
    return float(match[1]) * SPAN_S[match[3]] if match else None


def load_toml(path: Path, model: type[M]) -> M:
    """Read a TOML file into a closed model.

    Raises:
        ConfigError: The file is missing, is not TOML, or does not fit; says where and what to try.
    """
    return validate(read_toml(path), model, name=str(path))


def read_toml(path: Path) -> dict[str, Any]:
    """The data of a TOML file.

    Raises:
        ConfigError: The file is missing, too large, or not TOML.
    """
    try:
        text = read_bounded(path, CONFIG_BYTES).decode()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}", hint="check the path") from error
    except OverBudget as error:
        raise ConfigError(f"{path}: {error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start})") from error
    return _parse(text, str(path))


def parse_toml(text: str, model: type[M], *, name: str) -> M:
    """Parse TOML text into a closed model; ``name`` is what errors call it."""
    return validate(_parse(text, name), model, name=name)


def _parse(text: str, name: str) -> dict[str, Any]:
    try:
        return parse_toml_data(text)
    except ValueError as error:
        raise ConfigError(f"{name}: not valid TOML: {error}") from error


def validate(data: object, model: type[M], *, name: str) -> M:
    """Validate plain data against a closed model, with errors a person can act on."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems = _alternatives(_describe(detail, model) for detail in _of_its_shape(error.errors(), model))
        message = f"{name}: " + "; ".join(text for text, _ in problems[:5])
        if len(problems) > 5:
            message += f"; and {len(problems) - 5} more"
        hints = [hint for _, hint in problems if hint]
        raise ConfigError(message, hint="; ".join(dict.fromkeys(hints))) from None


def _alternatives(problems: Iterable[tuple[str, str, str, str]]) -> list[tuple[str, str]]:
    """Problems as (sentence, hint); what several types have to say of one value is one sentence."""
    found: dict[tuple[str, str], tuple[list[str], str]] = {}
    for where, said, got, hint in problems:
        found.setdefault((where, got), ([], hint))[0].append(said)
    return [
        (f"{where}: {' or: '.join(said)}{got}" if where else f"{' or: '.join(said)}{got}", hint)
        for (where, got), (said, hint) in found.items()
    ]


def _describe(detail: ErrorDetails, model: type[BaseModel]) -> tuple[str, str, str, str]:
    """One validation problem as (place, sentence, what was there instead, hint)."""
    loc = _keys_of(detail, model)
    where = dotted(loc)
    if detail["type"] == "extra_forbidden":
        key = str(loc[-1])
        known = sorted(known_keys(model, loc[:-1]))
        near = difflib.get_close_matches(key, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
        return where, "unknown key", "", hint
    if detail["type"] == "missing":
        return where, "missing", "", ""
    said = sentence(detail)
    if detail["type"] in ("model_type", "model_attributes_type", "dict_type"):
        said = "should be a table with keys of its own"
    elif detail["type"] in ("tuple_type", "list_type"):
        said = "should be a list"
    # A rule about several keys is given the whole table, which says nothing to the reader.
    got = "" if isinstance(detail["input"], dict) else f", got {detail['input']!r:.80}"
    return where, said, got, ""


def _keys_of(detail: ErrorDetails, model: type[BaseModel]) -> tuple[int | str, ...]:
    """The place of a problem without the words that only name one of the types which a value may have."""
    kept: list[int | str] = []
    models: list[type[BaseModel]] = [model]
    annotation: Any = model
    for place, part in enumerate(detail["loc"]):
        fields = [m.model_fields[part] for m in models if isinstance(part, str) and part in m.model_fields]
        if isinstance(part, str) and not fields and get_origin(annotation) in (Union, UnionType):
            is_key = detail["type"] == "extra_forbidden" and place == len(detail["loc"]) - 1
            if part in {m.__name__ for m in models} or not (models and is_key):
                continue
        kept.append(part)
        annotation = fields[0].annotation if fields else annotation
        models = models_in(annotation) or models
    return tuple(kept)


def _of_its_shape(details: list[ErrorDetails], model: type[BaseModel]) -> list[ErrorDetails]:
    """Problems without those of alternatives that a value is not meant to be: a table is no wrong word."""
    inside = {d["loc"][:-2] for d in details if len(d["loc"]) > 2}
    ends = {d["loc"][:-1] for d in details if d["type"] != "model_type"}

    def other(detail: ErrorDetails) -> bool:
        place = detail["loc"][:-1]
        if _keys_of(detail, model) == detail["loc"]:
            return False
        if detail["type"] == "model_type":
            return place in ends
        return isinstance(detail["input"], dict) and place in inside and detail["type"] != "missing"

    return [detail for detail in details if not other(detail)]


def sentence(detail: ErrorDetails) -> str:
    """What pydantic says of a value, without the words that it puts before a rule's own sentence."""
    return detail["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")


def dotted(loc: Iterable[int | str]) -> str:
    """``('devices', 0, 'meter')`` as ``devices[0].meter``; empty for the whole."""
    out = ""
    for part in loc:
        out += f"[{part}]" if isinstance(part, int) else f".{part}"
    return out.lstrip(".")


def known_keys(model: type[BaseModel], loc: Iterable[int | str]) -> set[str]:
    """The keys allowed at a place inside a model."""
    models: list[type[BaseModel]] = [model]
    for part in loc:
        if isinstance(part, int):
            continue
        inner = [f.annotation for m in models if (f := m.model_fields.get(part)) is not None]
        # A part that is no field is a dict key or a union tag: the models stay as they are.
        found = [found for annotation in inner for found in models_in(annotation)]
        models = found or models
    return {field.alias or key for m in models for key, field in m.model_fields.items()}


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The models that a value of this type may be."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for argument in get_args(annotation) for m in models_in(argument)]
