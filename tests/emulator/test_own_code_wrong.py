"""Files that cannot work: an error of joulefleet's own that names the user's file and line."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch

import emulator
from emulator.own_code import use_code
from joulefleet.errors import ConfigError
from tests.emulator.own_files import RENTS, TOKENS, nothing_given, written
from tests.emulator.test_own_code import small

__all__ = ["nothing_given"]  # a fixture

DATA = "    return x, 3 * x[:, 0] - 2 * x[:, 1]\n"
MODEL = "    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))\n"
LOSS = "\n\ndef loss(output, y):\n    return {}\n"
METRIC = "\n\ndef metric(output, y):\n    return {}\n"
UNSEEDED = """

import torch

calls = []


class model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 1)

    def forward(self, x):
        return self.inner(x)[:, 0].float() + {}
"""
IN_DATA, IN_MODEL, IN_LOSS = 8, 14, 18
"""Lines at which the functions begin."""


def with_data(returned: str) -> str:
    return RENTS.replace(DATA, f"    return {returned}\n")


def with_model(returned: str) -> str:
    return RENTS.replace(MODEL, f"    return {returned}\n")


WRONG = {
    # data
    "one array": (with_data("x"), f":{IN_DATA}: data gives ndarray"),
    "lengths": (with_data("x, x[:9, 0]"), f":{IN_DATA}: data gives 240 samples and 9 targets"),
    "no rows": (with_data("x[:, 0], x[:, 0]"), f":{IN_DATA}: data gives x of shape (240,) (float64)"),
    "text as x": (with_data("x.astype(str), x[:, 0]"), f":{IN_DATA}: data gives x as <U32"),
    "text as y": (with_data("x, x[:, 0].astype(str)"), f":{IN_DATA}: data gives y as <U32"),
    "NaN": (with_data("x * np.nan, x[:, 0]"), f":{IN_DATA}: data gives x with values that are not finite"),
    "NaN in y": (
        with_data("x, x[:, 0] * np.nan"),
        f":{IN_DATA}: data gives y with values that are not finite: 240 of 240, the first in row 0",
    ),
    "NaN in some": (
        with_data("np.where(np.isin(np.arange(240), [7, 9])[:, None], np.inf, x), x[:, 0]"),
        f":{IN_DATA}: data gives x with values that are not finite: 6 of 720, the first in row 7",
    ),
    "few": (with_data("x[:5], x[:5, 0]"), f":{IN_DATA}: data gives 5 samples"),
    "flat images": (
        with_data("x.astype('uint8'), x[:, 0]"),
        f":{IN_DATA}: data gives uint8 x of shape (240, 3)",
    ),
    "negative tokens": (
        with_data("-np.ones((240, 3), int), x[:, 0]"),
        f":{IN_DATA}: data gives negative whole",
    ),
    "negative labels": (with_data("x, np.full(240, -1)"), f":{IN_DATA}: data gives negative labels"),
    "groups": (with_data("x, x[:, 0], x"), f":{IN_DATA}: data gives groups of shape (240, 3)"),
    "splits": (with_data("{'train': (x, x[:, 0])}"), f":{IN_DATA}: data gives a dictionary with 'train'"),
    "unlike splits": (
        with_data("{'train': (x, x[:, 0]), 'test': (x[:, :2], x[:, 0])}"),
        f":{IN_DATA}: data gives x of shape (240, 2) (float32) in 'test'",
    ),
    "raises in data": (with_data("x, 1 / 0"), ":11: ZeroDivisionError: division by zero"),
    "a missing file": (with_data("np.load('nowhere.npy'), x"), ":11: FileNotFoundError: "),
    "asks for more": (RENTS.replace("def data()", "def data(a, b)"), "TypeError: "),
    # model
    "no module": (with_model("3"), f":{IN_MODEL}: model gives a int, not a torch module"),
    "nothing to learn": (with_model("nn.Flatten()"), f":{IN_MODEL}: model has no parameters"),
    "other inputs": (
        with_model("nn.Linear(4, 1)"),
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied",
    ),
    "outputs": (with_model("nn.Linear(3, 2)"), f":{IN_MODEL}: model gives (4, 2) for targets of (4,)"),
    "a tuple": (with_model("nn.LSTM(3, 1)"), f":{IN_MODEL}: model gives a tuple for a batch"),
    "a tuple for the metric": (
        with_model("nn.LSTM(3, 1)") + LOSS.format("(output[0][:, 0] - y) ** 2"),
        f":{IN_MODEL}: model gives a tuple for a batch, and metric 'mae' takes one tensor",
    ),
    "no tensors": (
        RENTS + UNSEEDED.format("0").replace("self.inner(x)[:, 0].float() + 0", "{'size': 3}"),
        ":23: model gives a dict for a batch, not a tensor",
    ),
    "double": (with_model("nn.Linear(3, 1).double()"), f":{IN_MODEL}: model has weight as float64"),
    "frozen": (
        with_model("nn.Sequential(nn.Linear(3, 1).requires_grad_(False), nn.Linear(1, 1))"),
        f":{IN_MODEL}: model has 0.weight frozen",
    ),
    "unused": (
        with_model("nn.ModuleDict({'a': nn.Linear(3, 1)})"),
        "NotImplementedError: Module [ModuleDict] is missing the required",
    ),
    "too few classes": (
        TOKENS.replace("nn.Linear(4, 6)", "nn.Linear(4, 5)"),
        "wrong.py:14: model gives 5 outputs, but the labels go from 0 to 5",
    ),
    # loss and metric
    "loss of the wrong name": (RENTS + "\nloss = 'msee'\n", "loss is 'msee'"),
    "cross entropy of numbers": (RENTS + "\nloss = 'cross_entropy'\n", ":8: data gives numbers to predict"),
    "squares of classes": (TOKENS + "\nloss = 'mse'\n", "data gives y as whole numbers"),
    "loss of a matrix": (
        RENTS + LOSS.format("(output - y) ** 2"),
        f":{IN_LOSS}: loss gives (4, 4) for a batch of 4",
    ),
    "loss of None": (RENTS + LOSS.format("None"), f":{IN_LOSS}: loss gives a NoneType for a batch"),
    "loss NaN": (RENTS + LOSS.format("(output[:, 0] * float('nan'))"), f":{IN_LOSS}: loss is not finite"),
    "loss detached": (RENTS + LOSS.format("output[:, 0].detach()"), f":{IN_LOSS}: loss does not depend on"),
    "loss raises": (RENTS + LOSS.format("undefined"), ":19: NameError: name 'undefined'"),
    "metric of one number": (
        RENTS + METRIC.format("output.mean()"),
        f":{IN_LOSS}: metric gives () for a batch",
    ),
    "metric of classes": (RENTS + "\nmetric = 'accuracy'\n", "metric 'accuracy' does not fit y"),
    "metric of a column": (
        RENTS + METRIC.replace("metric", "loss_").format("output[:, 0]") + "\nmetric = 'r3'\n",
        "'r3'",
    ),
    "no seed": (
        RENTS + UNSEEDED.format("torch.from_numpy(np.random.default_rng().normal(size=len(x)))"),
        ":23: model gives other numbers for the same batch and seeds",
    ),
    "global state": (
        RENTS + UNSEEDED.format("len(calls) + (calls.append(1) or 0)"),
        ":23: model gives other numbers for the same batch and seeds",
    ),
    # settings and the file
    "rate": (RENTS.replace("learning_rate = 0.05", "learning_rate = '0.05'"), "learning_rate is '0.05'"),
    "batch": (RENTS + "\nbatch_size = 0\n", "batch_size is 0"),
    "syntax": (RENTS + "\ndef:\n", ":17: SyntaxError: "),
    "raises": ("import nowhere_to_be_found\n" + RENTS, ":1: ModuleNotFoundError: No module named"),
    "exits": ("import sys\nsys.exit('bye')\n", ":2: SystemExit: bye"),
    "no model": (RENTS.split("def model")[0], "has `data`, but no `model`"),
    "nothing": ("x = 1\n", "offers nothing"),
    "rewards": ("rewards = [max]\n", "`rewards` is not a dictionary of functions by name"),
    "a name that is ours": (
        RENTS + "\nname = 'mnist-lenet5'\n",
        "a task called 'mnist-lenet5' is there already",
    ),
    "a data set that is ours": (RENTS + "\nname = 'digits'\n", "a data set called 'digits' is there already"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_work_is_refused_with_file_and_line(tmp_path: Path, what: str) -> None:
    text, expected = WRONG[what]
    code = written(tmp_path, "wrong.py", text)
    with pytest.raises(ConfigError) as error:
        use_code(code)
    assert str(code) in error.value.message
    assert expected in error.value.message


def test_a_file_beside_it_is_not_part_of_it(tmp_path: Path) -> None:
    written(tmp_path, "sizes.py", "WIDTH = 3\n")
    for line in ("import sizes", "from sizes.inner import WIDTH"):
        with pytest.raises(ConfigError, match="1: ModuleNotFoundError: No module named 'sizes'") as error:
            use_code(written(tmp_path, "wrong.py", f"{line}\n{RENTS}"))
        assert "sizes.py lies beside it" in error.value.hint
    with pytest.raises(ConfigError, match="ModuleNotFoundError") as error:
        use_code(written(tmp_path, "wrong.py", f"import shapes\n{RENTS}"))
    assert not error.value.hint


def test_trying_a_model_leaves_the_callers_generators_alone(tmp_path: Path) -> None:
    noisy = RENTS + UNSEEDED.format("torch.rand(len(x)) + np.random.normal() + __import__('random').random()")
    use_code(written(tmp_path, "noisy.py", noisy))
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002 - the caller's
    use_code(written(tmp_path, "noisy.py", noisy))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
    assert random.getstate() == before[2]


def test_a_path_that_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder"):
        use_code(tmp_path)
    with pytest.raises(ConfigError, match="No such file"):
        use_code(tmp_path / "nowhere.py")
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="codec"):
        use_code(tmp_path / "binary.py")


def test_two_tasks_of_one_name(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    first, second = written(tmp_path, "rents.py", RENTS), written(tmp_path / "a", "rents.py", RENTS + "# b\n")
    with pytest.raises(ConfigError, match="two files of one name"):
        use_code(first, second)
    use_code(first)
    other = written(tmp_path, "other.py", RENTS + "\nname = 'rents'\n")
    with pytest.raises(ConfigError, match=r"a task called 'rents' is there already, from .*rents.py"):
        use_code(other)


def test_several_tasks_have_to_be_chosen_from(tmp_path: Path) -> None:
    codes = [written(tmp_path, "rents.py", RENTS), written(tmp_path, "tokens.py", TOKENS)]
    with pytest.raises(ConfigError, match="--code gives rents, tokens"):
        emulator.run(small(), code=codes, out=tmp_path / "o")
    assert (
        emulator.run(small(name="tokens"), code=codes, out=tmp_path / "o").record.metric.name == "perplexity"
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_what_goes_wrong_in_the_middle_names_the_line_too(tmp_path: Path, workers: int) -> None:
    text = RENTS + LOSS.format("(output[:, 0] - y) ** 2 if len(y) < 7 else undefined")
    code = written(tmp_path, "rents.py", text)
    scenario = small()
    two = scenario.trainer.model_copy(update={"workers": workers})
    with pytest.raises(ConfigError, match=r"rents\.py:19: NameError: name 'undefined' is not defined"):
        emulator.run(scenario.model_copy(update={"trainer": two}), code=[code], out=tmp_path / "o")
