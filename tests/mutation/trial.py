"""Runs inside a scratch copy: collects the tests once, and forks for every mutant.

In the fork the code of the mutated function is replaced, so that a mutant costs no more than the tests that
reach it. What is evaluated on import is tried in a new process from a mutated file.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import gc
import importlib
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from tests.mutation.mutants import Mutant

LONGEST_TEST_S, MOST_TESTS_S = 10.0, 30.0
"""Seconds of a processor: tests that take longer are not asked, nor are tests beyond so many for a mutant."""


@dataclass(slots=True)
class Reached:
    """What a test did on the code as it is.

    Attributes:
        passed: Those that fail without any mutant say nothing.
        cpu_s: Seconds of a processor.
        lines: Of each mutated module, those that it executed.
    """

    passed: bool
    cpu_s: float
    lines: dict[str, list[int]] = field(default_factory=dict)

    def executes(self, mutant: Mutant) -> bool:
        """Whether it can notice; what is evaluated on import, all of the module's tests may."""
        first, last = mutant.lines if mutant.function else (0, sys.maxsize)
        return any(first <= line <= last for line in self.lines.get(mutant.module, ()))

    def distance(self, module: str) -> float:
        """Small for a cheap test that does little elsewhere."""
        everywhere = 1 + sum(map(len, self.lines.values()))
        return self.cpu_s * everywhere / max(1, len(self.lines.get(module, ())))


class Loop:
    """A plugin that takes the place of pytest's own loop over the tests."""

    def __init__(self, body: Callable[[Loop], None]) -> None:
        self._body = body
        self.items: dict[str, pytest.Item] = {}
        self._failed = False

    def pytest_configure(self, config: pytest.Config) -> None:
        config.addinivalue_line("markers", "xdist_group(name): its plugin is off here")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        from hypothesis import settings  # after pytest's own import of it, which rewrites assertions

        settings.register_profile("mutation", derandomize=True, database=None, deadline=None)
        settings.load_profile("mutation")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        self._body(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= report.failed

    def passes(self, item: pytest.Item, following: pytest.Item | None) -> bool:
        """Runs one test."""
        self._failed = False
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        return not self._failed


def collect(tests: list[str], body: Callable[[Loop], None]) -> None:
    """Collects tests in this process and hands them over."""
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "timeout=0", "--basetemp", "../tmp"]
    pytest.main([*options, *tests], plugins=[Loop(body)])


def reach(loop: Loop, modules: set[str], write: Callable[[str, Reached], None]) -> None:
    """Runs every test once and tells which statements of the modules it executed.

    The functions note it themselves: a tracer would be called for every call of every library.
    """
    executed: dict[str, set[int]] = {module: set() for module in sorted(modules)}
    for number, (module, lines) in enumerate(executed.items()):
        importlib.import_module(module.removesuffix(".py").replace("/", "."))
        setattr(builtins, f"_executed_{number}", lines.add)
        noting = _Noting(f"_executed_{number}").visit(ast.parse(Path(module).read_text()))
        _give(module, ast.fix_missing_locations(noting))
    for item in loop.items.values():
        for lines in executed.values():
            lines.clear()
        start_s = sum(os.times()[:4])
        passed = loop.passes(item, None)
        reached = {module: sorted(lines) for module, lines in executed.items() if lines}
        write(item.nodeid, Reached(passed, round(sum(os.times()[:4]) - start_s, 3), reached))


class _Noting(ast.NodeTransformer):
    """Puts a call with its line before each statement of a function."""

    def __init__(self, name: str) -> None:
        self._name = name

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if not isinstance(node, ast.Module | ast.ClassDef):
            for part in ("body", "orelse", "finalbody"):
                if isinstance(statements := getattr(node, part, None), list):
                    setattr(node, part, [each for one in statements for each in (self._call(one), one)])
        return node

    def _call(self, before: ast.stmt) -> ast.stmt:
        call = ast.Call(ast.Name(self._name, ast.Load()), [ast.Constant(before.lineno)], [])
        return ast.copy_location(ast.Expr(call), before)


Timed = list[tuple[str, float]]
"""Tests, and the seconds of a processor that each takes."""


def try_in_fork(loop: Loop, mutant: Mutant | None, tests: Timed) -> tuple[str, str | None]:
    """``killed``, ``timeout``, ``survived`` or ``error``, and the test; None is the code as it is."""

    def body(pipe: int) -> None:
        if mutant is not None:
            replace_code(mutant)
        _run(loop, tests, lambda said: os.write(pipe, said.encode()))

    return _outcome(in_fork(body, 60.0 + 4.0 * sum(cpu_s for _, cpu_s in tests)))


def _run(loop: Loop, tests: Timed, say: Callable[[str], object]) -> None:
    """Runs tests until one fails or takes far longer than it should; in folders that nobody else has used."""
    scratch = Path("../scratch").resolve()
    shutil.rmtree(scratch, ignore_errors=True)
    for variable in ("HOME", "TMPDIR", "XDG_CACHE_HOME"):
        (scratch / variable).mkdir(parents=True)
        os.environ[variable] = str(scratch / variable)
    tempfile.tempdir = None
    for name, cpu_s in tests:
        say(f"{name}\ttimeout\n")  # what holds if this process ends now
        signal.setitimer(signal.ITIMER_PROF, 5.0 + 4.0 * cpu_s)
        signal.setitimer(signal.ITIMER_REAL, 60.0 + 30.0 * cpu_s)  # one that waits for ever
        try:
            passed = name in loop.items and loop.passes(loop.items[name], None)
        except BaseException:  # whatever a mutant lets out
            passed = False
        for clock in (signal.ITIMER_PROF, signal.ITIMER_REAL):
            signal.setitimer(clock, 0.0)
        if not passed:
            say(f"{name}\tkilled\n")
            return
    say("\tsurvived\n")


def in_fork(body: Callable[[int], None], cpu_s: float) -> str:
    """What the body wrote to its pipe before it ended, or was ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            os.close(reading)
            limit(cpu_s)
            body(writing)
        finally:
            os._exit(0)
    os.close(writing)
    try:
        return _read(reading, time.monotonic() + 60.0 + 30.0 * cpu_s)
    finally:
        os.close(reading)
        for stop in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError):
                stop(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _read(pipe: int, until_s: float) -> str:
    said = b""
    while (left_s := until_s - time.monotonic()) > 0 and select.select([pipe], [], [], left_s)[0]:
        part = os.read(pipe, 65536)
        if not part:
            break
        said += part
    return said.decode()


def limit(cpu_s: float) -> None:
    """A mutant may loop, or ask for all memory."""
    resource.setrlimit(resource.RLIMIT_CPU, (round(cpu_s) + 1, round(cpu_s) + 2))
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))


def _outcome(said: str) -> tuple[str, str | None]:
    test, _, outcome = said.strip("\n").rpartition("\n")[2].partition("\t")
    return outcome or "error", test or None


def replace_code(mutant: Mutant) -> None:
    """Gives the function, wherever it is referred to, the mutant's code."""
    if not _give(mutant.module, mutant.apply(), mutant.function):
        raise LookupError(mutant.key)


def _give(module: str, tree: ast.Module, name: str | None = None) -> bool:
    """Gives one function of a module, or all, the code of a tree; false if that one is not there."""
    path = str(Path.cwd() / module)
    whole = compile(tree, path, "exec", dont_inherit=True)
    # Not isinstance, which asks objects for their class: torch has some that warn at that.
    found = [f for f in gc.get_objects() if type(f) is FunctionType and f.__code__.co_filename == path]
    old = [f for f in found if name in (None, f.__code__.co_qualname)]
    new = [code for code in _codes(whole) if name in (None, code.co_qualname)]
    if name is not None and (not old or len({f.__code__ for f in old}) != len(new)):
        return False
    for function in old:
        was = function.__code__
        alike = [code for code in new if code.co_qualname == was.co_qualname]
        if not was.co_qualname.endswith("<lambda>"):  # of one statement, and several may share a line
            # A property's getter and setter share a name: the same line tells them apart.
            function.__code__ = min(alike, key=lambda c: abs(c.co_firstlineno - was.co_firstlineno))
    return True


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def try_in_new_process(mutant: Mutant | None, tests: Timed) -> tuple[str, str | None]:
    """As `try_in_fork`, with everything imported anew, from a mutated file."""
    Path("../asked").write_text(json.dumps(tests))  # more than fits on a command line
    command = [sys.executable, "-m", "tests.mutation.trial"]
    cpu_s = 120.0 + 4.0 * sum(cpu_s for _, cpu_s in tests)
    said = Path("../said")
    said.write_text("\tkilled\n")  # what holds if nothing can be imported any more
    with (
        _mutated(mutant),
        subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=lambda: limit(cpu_s),  # noqa: PLW1509 - this process has no threads
        ) as process,
    ):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30.0 * cpu_s)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return _outcome(said.read_text())


@contextlib.contextmanager
def _mutated(mutant: Mutant | None) -> Iterator[None]:
    if mutant is None:
        yield
        return
    file = Path(mutant.module)
    original = file.read_text()
    try:
        file.write_text(ast.unparse(mutant.apply()))
        yield
    finally:
        file.write_text(original)


def _main(tests: Timed) -> None:
    def say(text: str) -> None:
        with Path("../said").open("a") as file:
            file.write(text)

    collect(sorted({name.partition("::")[0] for name, _ in tests}), lambda loop: _run(loop, tests, say))
    os._exit(0)


if __name__ == "__main__":
    _main([(name, cpu_s) for name, cpu_s in json.loads(Path("../asked").read_text())])
