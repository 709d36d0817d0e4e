"""Keys of a scenario and values for them, as they are typed or stand in ``[sweep]``.

Values are typed by the scenario's own model, so that a sweep takes exactly what the file would.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from emulator.scenario.load import found_from
from emulator.scenario.model import Scenario, SelectorSection
from joulefleet.budgets import parse_toml_data
from joulefleet.config import known_keys, models_in, validate
from joulefleet.errors import ConfigError
from joulefleet.records import canonical_json

MOST = 10_000
"""Emulations of one run: more are a slip of the pen, or belong into several runs."""
NONE = "none"
"""How ``None`` is written: TOML has no word for it."""
ELSEWHERE = {
    "seeds": "seeds are paired across variants: give them with `--seeds`, or as `seeds` of the scenario",
    "selector": "give several selectors with `--selector`, or as `selectors` of [sweep]",
    "selector.name": "give several selectors with `--selector`, or as `selectors` of [sweep]",
    "name": "the name of a scenario decides nothing",
    "schema_version": "this says how a file is written",
    "code": "give the files with `--code`",
    "sweep": "there are no sweeps of sweeps",
}
"""Keys that are no matter of a sweep, and what to do instead."""
SHOWN_VALUE = 40
"""Longest value in a label."""


def with_settings(scenario: Scenario, settings: Mapping[str, Any]) -> Scenario:
    """A scenario with other values at some keys, dotted as in ``protocol.k``.

    Raises:
        ConfigError: It does not fit together.
    """
    if not settings:
        return scenario
    name = f"{scenario.name} with {', '.join(f'{key} = {shown(one)}' for key, one in settings.items())}"
    return validate(_changed(scenario, settings), Scenario, name=name)


def setting(scenario: Scenario, key: str) -> Any:
    """The value at a dotted key, as plain data; ``None`` where there is nothing."""
    found: Any = scenario.model_dump(mode="json")
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def selectors_in(texts: Sequence[str]) -> list[SelectorSection]:
    """Selectors as they are typed: ``fedavg,oort:mode=official,penalty=1``.

    Raises:
        ConfigError: There is none, or an option has no name or value.
    """
    found: list[tuple[str, dict[str, Any]]] = []
    for part in (part for text in texts for part in split_list(text)):
        name, colon, first = (word.strip() for word in part.partition(":"))
        # After a comma the options of a selector go on: no selector has "=" in its name.
        if "=" in name and found:
            option = part
        else:
            if "=" in name:
                who, rest = re.split(r"\W+", name, maxsplit=1)
                raise ConfigError(
                    f"--selector {part!r}: not a selector", hint=f"options follow a colon: {who}:{rest}"
                )
            found.append((name, {}))
            option = first
            if not name or (colon and not first):
                raise ConfigError(f"--selector {part!r}: not a selector", hint="e.g. oort:mode=official")
        if option:
            key, equals, value = (word.strip() for word in option.partition("="))
            if not (key and equals and value):
                raise ConfigError(
                    f"--selector {found[-1][0]}: {option!r} is no option", hint="e.g. oort:mode=official"
                )
            if key in found[-1][1]:
                raise ConfigError(f"--selector {found[-1][0]}: {key!r} is given twice")
            found[-1][1][key] = literal(value)
    if texts and not found:
        raise ConfigError("--selector: no selector", hint="`joulefleet list selectors` shows them")
    return [SelectorSection(name=name, options=options) for name, options in found]


def settings_in(texts: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """``--set`` as it is typed: ``protocol.k=5,10,20``.

    Raises:
        ConfigError: One has no key or no value, or a key comes twice.
    """
    found: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        key, equals, values = (word.strip() for word in text.partition("="))
        if not key or not equals:
            raise ConfigError(f"--set {text!r}: no key and value", hint="e.g. --set protocol.k=5,10,20")
        if key in found:
            raise ConfigError(f"--set {key}: comes twice", hint=f"give all values at once: {key}=A,B")
        found[key] = tuple(_Typed(part) for part in split_list(values))
    return found


def split_list(text: str) -> list[str]:
    """The parts of a list, at its commas outside of quotes and brackets; empty parts count."""
    parts, depth, quote = [""], 0, ""
    for sign in text:
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        else:
            depth += (sign in "[{") - (sign in "]}")
        if sign == "," and not quote and depth <= 0:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts] if text.strip() else []


def literal(text: str) -> Any:
    """A value as TOML has it; what is none is a string."""
    try:
        return parse_toml_data(f"value = {text}")["value"] if "\n" not in text else text
    except (ValueError, LookupError):
        return text


class _Typed(str):
    """A value as it was typed on a command line, where nothing says whether ``5`` is a number."""

    __slots__ = ()


def _readings(value: Any) -> list[Any]:
    """What a value may mean, the likeliest first."""
    first = [None] if value == NONE else []
    if isinstance(value, _Typed):
        plain = str(value)
        read = literal(plain)
        return [*first, read, *([plain] if read != plain else [])]
    return [*first, value]


def typed_lists(base: Scenario, lists: Mapping[str, Any], folder: Path) -> dict[str, tuple[Any, ...]]:
    """Values of several keys as the scenario's model reads them; files they name are found from a folder.

    Raises:
        ConfigError: A key or value does not fit, there is none, or one comes twice.
    """
    for key, values in lists.items():
        _check_key(key)
        _check_list(key, values)
    readings = {key: _readings(values[0]) for key, values in lists.items()}
    firsts = {
        key: next((one for one in some if not _refused(_changed(base, {key: one}), key)), some[-1])
        for key, some in readings.items()
    }
    found = {}
    for key, values in lists.items():
        # Beside the first values of the others: some keys make sense together only.
        found[key] = tuple(_as_model_has_it(base, firsts, key, value, folder) for value in values)
        texts = [canonical_json(value) for value in found[key]]
        for value, text in zip(found[key], texts, strict=True):
            if texts.count(text) > 1:
                raise ConfigError(f"{key}: {shown(value)} comes twice", hint="name each value once")
    return found


def _check_list(key: str, values: Any) -> None:
    if isinstance(values, str | Mapping) or not isinstance(values, Sequence):
        raise ConfigError(f"{key}: {values!r:.60} is not a list of values", hint=f"e.g. {key} = [...]")
    if not values or any(isinstance(value, _Typed) and not value for value in values):
        raise ConfigError(f"{key}: a value is missing", hint=f"e.g. --set {key}=A,B")
    if len(values) > MOST:
        raise ConfigError(f"{key}: {len(values):,} values", hint=f"at most {MOST:,} emulations in one run")


def _as_model_has_it(base: Scenario, others: Mapping[str, Any], key: str, value: Any, folder: Path) -> Any:
    readings = _readings(value)
    for reading in readings:
        data = _changed(base, {**others, key: reading})
        if not _refused(data, key):
            return setting(found_from(folder, _loosely(base, data, key)), key)
    likely = readings[-1] if value == NONE else readings[0]
    where = "--set" if isinstance(value, _Typed) else "sweep"
    if isinstance(value, _Typed) and value.startswith("[") and isinstance(likely, str):
        raise ConfigError(
            f"--set {key}: {value!r:.60} is not a list as TOML has it",
            hint=f"""strings are quoted: --set '{key}=["a", "b"]'""",
        )
    validate(_changed(base, {key: likely}), Scenario, name=where)
    raise ConfigError(f"{where}: {key}: {value!r:.60} does not fit")


def _refused(data: dict[str, Any], key: str) -> bool:
    """Whether a scenario's model finds fault with the value at a key, whatever it thinks of the whole."""
    path = tuple(key.split("."))
    try:
        Scenario.model_validate(data)
    except ValidationError as error:
        return any(detail["loc"][: len(path)] == path for detail in error.errors())
    return False


def _loosely(base: Scenario, data: dict[str, Any], key: str) -> Scenario:
    """The scenario with one section of other data: rules about several sections are not asked."""
    section = key.partition(".")[0]
    if section == key:
        alone = validate({"name": base.name, key: data[key]}, Scenario, name="sweep")
        return base.model_copy(update={key: getattr(alone, key)})
    kind = type(getattr(base, section))
    try:
        return base.model_copy(update={section: validate(data[section], kind, name="")})
    except ConfigError as error:  # other keys of the section are missing
        raise ConfigError(f"{section}.{error.message.removeprefix(': ')}", hint=error.hint) from error


def _check_key(key: str) -> None:
    """Refuse what is no key of a scenario, or no matter of a sweep."""
    top = key.partition(".")[0]
    for elsewhere in (key, *({top} - {"selector"})):  # options of the selector may be swept
        if elsewhere in ELSEWHERE:
            raise ConfigError(f"{key} is nothing to sweep", hint=ELSEWHERE[elsewhere])
    models: list[type[BaseModel]] = [Scenario]
    before: list[str] = []
    for part in key.split("."):
        if not models:  # inside a table of free names, as `task.options`
            return
        fields = {name: info for model in models for name, info in model.model_fields.items()}
        if part not in fields:
            known = known_keys(Scenario, before) if before else {*_keys(Scenario)}
            wanted = part if before else key
            near = difflib.get_close_matches(wanted, known, n=1)
            near = near or [one for one in known if one.rpartition(".")[2] == wanted][:1]
            place = ".".join([*before, near[0]]) if near else ""
            hint = f"did you mean {place!r}?" if place else f"known keys: {', '.join(sorted(known))}"
            raise ConfigError(f"{key}: unknown key", hint=hint)
        models = models_in(fields[part].annotation)
        plain = models and fields[part].annotation in models
        before.append(part)
    if models and plain:
        inner = sorted(known_keys(Scenario, before))
        raise ConfigError(f"{key}: is a table", hint=f"name a key of it: {key}.{inner[0]}, ...")


def _keys(model: type[BaseModel], before: str = "") -> Iterator[str]:
    """Every dotted key of a model."""
    for name, info in model.model_fields.items():
        inner = models_in(info.annotation)
        yield f"{before}{name}"
        for one in inner:
            yield from _keys(one, f"{before}{name}.")


_LAST_WORDS = Counter(key.rpartition(".")[2] for key in _keys(Scenario))
SHORT = {key: last for key in _keys(Scenario) if _LAST_WORDS[last := key.rpartition(".")[2]] == 1}
"""Keys to their last word, where no other key has it."""


def _changed(scenario: Scenario, settings: Mapping[str, Any]) -> dict[str, Any]:
    data = scenario.model_dump()
    for key, value in settings.items():
        inner = data
        *tables, last = key.split(".")
        for part in tables:
            if not isinstance(inner.get(part), dict):
                inner[part] = {}
            inner = inner[part]
        inner[last] = value
    return data


def shown(value: Any) -> str:
    """A value in a label: short, and another one for another value."""
    if value is None:
        return NONE
    if isinstance(value, str) and "/" in value:
        value = value.rstrip("/").rpartition("/")[2]
    if isinstance(value, float):
        value = f"{value:.12g}"
    text = str(value) if not isinstance(value, list | tuple | dict) else json.dumps(value, default=str)
    if len(text) <= SHOWN_VALUE:
        return text
    return f"{text[: SHOWN_VALUE - 10]}~{hashlib.sha256(text.encode()).hexdigest()[:8]}"
