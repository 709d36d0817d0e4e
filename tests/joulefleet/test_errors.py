import json
import pickle
import subprocess
import sys

import pytest

from joulefleet import errors


def all_errors() -> list[type[errors.JoulefleetError]]:
    found = [errors.JoulefleetError]
    for cls in found:
        found += cls.__subclasses__()
    return found


# A class that nobody has imported is no subclass yet, so every module is; in a process of its own, because it
# should not matter to other tests what was. What needs a package of another extra cannot be imported.
EVERYWHERE = """
import importlib, json, pkgutil
OURS = ("joulefleet", "power", "traces", "device_agents", "emulator", "harness")
for name in OURS:
    for module in pkgutil.walk_packages(importlib.import_module(name).__path__, name + "."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                if error.name.split(".")[0] in OURS:
                    raise
from joulefleet.errors import JoulefleetError
found = [JoulefleetError]
for cls in found:
    found += cls.__subclasses__()
print(json.dumps({cls.__name__: cls.exit_code for cls in found}))
"""


def test_every_error_has_a_documented_exit_code() -> None:
    done = subprocess.run([sys.executable, "-c", EVERYWHERE], capture_output=True, text=True, check=True)
    exit_codes: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    assert {cls.__name__ for cls in all_errors()} <= set(exit_codes)
    documented = dict(
        line.strip("│├└─ ").split()[:2] for line in (errors.__doc__ or "").splitlines() if "    " in line
    )
    assert {name: str(code) for name, code in exit_codes.items()} == documented


def test_transient_is_read_from_the_type() -> None:
    assert errors.MeterBusy("busy").transient
    assert not errors.MeterNotFound("gone").transient


def test_a_worker_process_can_send_an_error_home() -> None:
    # multiprocessing pickles exceptions; the hint must survive.
    error = pickle.loads(pickle.dumps(errors.ConfigError("wrong", hint="do this")))
    assert (type(error), error.message, error.hint) == (errors.ConfigError, "wrong", "do this")


@pytest.mark.parametrize("cls", all_errors())
def test_the_message_is_what_str_shows(cls: type[errors.JoulefleetError]) -> None:
    assert str(cls("what happened", hint="what to try")) == "what happened"
