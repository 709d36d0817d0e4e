from pathlib import Path
from typing import Literal, Self

import pytest
from pydantic import Field, model_validator

from joulefleet.config import ClosedModel, load_toml, parse_toml, validate
from joulefleet.errors import ConfigError


class Meter(ClosedModel):
    kind: str
    voltage_v: float = Field(gt=0)


class Device(ClosedModel):
    host: str = ""
    meter: Meter | None = None


class Bench(ClosedModel):
    devices: dict[str, Device] = Field(default_factory=dict)
    order: list[Meter] = Field(default_factory=list)
    seed: int = 0


def fails(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse_toml(text, Bench, name="bench.toml")
    return caught.value


def test_unknown_key_names_path_and_nearest() -> None:
    error = fails('[devices.pi]\nhost = "a"\n[devices.pi.meter]\nkind = "x"\nvoltage_v = 4.0\nvoltagev = 3\n')
    assert "devices.pi.meter.voltagev: unknown key" in error.message
    assert "did you mean 'voltage_v'?" in error.hint


def test_unknown_key_at_the_top_level() -> None:
    error = fails("sede = 1\n")
    assert error.message == "bench.toml: sede: unknown key"
    assert "'seed'" in error.hint


def test_unknown_key_without_a_near_one_lists_the_known() -> None:
    assert fails("zzz = 1\n").hint == "known keys: devices, order, seed"


def test_place_inside_a_list() -> None:
    error = fails('[[order]]\nkind = "a"\nvoltage_v = -1\n')
    assert "order[0].voltage_v" in error.message
    assert "-1" in error.message


def test_missing_key_is_named() -> None:
    assert "order[0].kind: missing" in fails("[[order]]\nvoltage_v = 1\n").message


def test_not_toml() -> None:
    assert "not valid TOML" in fails("= nonsense").message


def test_nan_is_refused() -> None:
    assert "voltage_v" in fails('[[order]]\nkind = "a"\nvoltage_v = nan\n').message


def test_missing_and_binary_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_toml(tmp_path / "absent.toml", Bench)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_toml(tmp_path / "binary.toml", Bench)


def test_models_are_frozen() -> None:
    bench = parse_toml("seed = 3\n", Bench, name="b")
    with pytest.raises(ValueError, match="frozen"):
        bench.seed = 4


class Span(ClosedModel):
    first: int = 0
    last: int = 0

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.last < self.first:
            raise ValueError("last is before first")
        return self


def test_a_rule_is_told_in_its_own_words() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_toml("first = 2\n", Span, name="span.toml")
    assert caught.value.message == "span.toml: last is before first"


def test_a_value_where_a_table_belongs_is_told_without_names_of_classes() -> None:
    message = fails("[devices]\nhost = 'a'\n").message
    assert message == "bench.toml: devices.host: should be a table with keys of its own, got 'a'"


class Choice(ClosedModel):
    """What may be of several types."""

    count: int | Literal["all"] | None = None
    names: Literal["all"] | tuple[str, ...] = "all"
    sizes: dict[str, int] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _rule(self) -> Self:
        if self.count == 0:
            raise ValueError("count: is nothing")
        return self


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "f: should be a table with keys of its own, got []"),
        ({"count": 0}, "f: count: is nothing"),
        (
            {"count": "some"},
            "f: count: Input should be a valid integer, unable to parse string as an integer or: Input",
        ),
        ({"names": 3}, "f: names: Input should be 'all' or: should be a list, got 3"),
        ({"names": [1]}, "f: names: Input should be 'all', got [1]; names"),
        (
            {"sizes": {"a": "x"}},
            "f: sizes.a: Input should be a valid integer, unable to parse string as an integer, got 'x'",
        ),
    ],
)
def test_messages_have_the_user_s_words_only(data: object, said: str) -> None:
    """No "(top level)", no "Value error,", no names of types."""
    with pytest.raises(ConfigError) as raised:
        validate(data, Choice, name="f")
    assert raised.value.message.startswith(said)
