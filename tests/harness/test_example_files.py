"""`examples/devices.toml` and `examples/plan.toml` show every key that there is."""

import inspect
import tomllib
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from device_agents.payload.agent import IDLE_LIMIT_S
from harness.bench.plan import Plan
from harness.federate.settings import FederateTiming
from harness.inventory import Inventory
from tests.conftest import REPOSITORY


def models_in(kind: Any) -> list[type[BaseModel]]:
    """The models in a type: itself, or what it is optional, a list or a table of."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind]
    return [model for part in typing.get_args(kind) for model in models_in(part)]


def key(model: type[BaseModel], name: str) -> str:
    """A key by where it is defined: a login is a login, a device's or a jump host's."""
    owner = next(base for base in reversed(model.__mro__) if name in inspect.get_annotations(base))
    return f"{owner.__name__}.{name}"


def known(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield key(model, name)
        for inner in models_in(field.annotation):
            yield from known(inner)


def written(data: dict[str, Any], model: type[BaseModel]) -> Iterator[str]:
    for name, value in data.items():
        yield key(model, name)
        for inner in models_in(model.model_fields[name].annotation):
            for table in tables(value, inner):
                yield from written(table, inner)


def tables(value: Any, model: type[BaseModel]) -> list[dict[str, Any]]:
    """One table, a list of them, or tables by name."""
    if isinstance(value, list):
        return value
    return [value] if value.keys() <= model.model_fields.keys() else list(value.values())


@pytest.mark.parametrize(("file", "model"), [("devices.toml", Inventory), ("plan.toml", Plan)])
def test_every_key_is_shown(file: str, model: type[BaseModel]) -> None:
    data = tomllib.loads((REPOSITORY / "examples" / file).read_text(encoding="utf-8"))
    assert set(written(data, model)) == set(known(model))


def test_agents_outwait_the_longest_silence_that_settings_allow() -> None:
    keys = FederateTiming.model_json_schema()["properties"]
    assert sum(keys[name]["maximum"] for name in ("settle_s", "idle_s", "start_timeout_s")) < IDLE_LIMIT_S
