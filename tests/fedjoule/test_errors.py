import pickle

import pytest

from fedjoule import errors


def all_errors() -> list[type[errors.FedjouleError]]:
    found = [errors.FedjouleError]
    for cls in found:
        found += cls.__subclasses__()
    return found


def test_every_error_has_a_documented_exit_code() -> None:
    tree = errors.__doc__ or ""
    for cls in all_errors():
        assert cls.__name__ in tree
        line = next(line for line in tree.splitlines() if cls.__name__ in line)
        assert f" {cls.exit_code} " in line + " ", line


def test_transient_is_read_from_the_type() -> None:
    assert errors.MeterBusy("busy").transient
    assert not errors.MeterNotFound("gone").transient


def test_a_worker_process_can_send_an_error_home() -> None:
    # multiprocessing pickles exceptions; the hint must survive.
    error = pickle.loads(pickle.dumps(errors.ConfigError("wrong", hint="do this")))
    assert (type(error), error.message, error.hint) == (errors.ConfigError, "wrong", "do this")


@pytest.mark.parametrize("cls", all_errors())
def test_the_message_is_what_str_shows(cls: type[errors.FedjouleError]) -> None:
    assert str(cls("what happened", hint="what to try")) == "what happened"
