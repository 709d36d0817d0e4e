"""Runs a page of docs/ as its reader would: writes its files, types its commands, executes its Python."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conftest import REPOSITORY

BLOCK = re.compile(
    r'^```(?P<kind>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$', re.DOTALL | re.MULTILINE
)
ANSWER_S = 60
"""Until a program in the second terminal has printed its address."""


@dataclass
class Reader:
    """Somebody who does what a page says, in a folder of their own.

    Attributes:
        folder: Where they work.
        words: What they put for the page's capital words, such as RUN.
        said: What the commands have printed.
        names: Of the page's Python.
    """

    folder: Path
    words: dict[str, str] = field(default_factory=dict)
    said: str = ""
    names: dict[str, Any] = field(default_factory=dict)
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def follow(self, page: str) -> None:
        """Do everything on a page, from top to bottom."""
        text = (REPOSITORY / "docs" / page).read_text(encoding="utf-8")
        with self.stack:
            for block in BLOCK.finditer(text):
                kind, title, body = block["kind"], block["title"], self.meant(block["text"])
                if title == "second terminal":
                    self.words["ADDRESS"] = self.start(body)
                elif title:
                    (self.folder / title).write_text(body, encoding="utf-8")
                elif kind == "python":
                    exec(compile(body, page, "exec"), self.names)
                else:
                    self.type(kind, body)

    def meant(self, text: str) -> str:
        for word, meaning in self.words.items():
            text = re.sub(rf"\b{word}\b", meaning, text)
        return text

    def type(self, kind: str, text: str) -> None:
        assert kind == "sh", f"{kind}: not on a page that is followed"
        for line in map(self.meant, text.splitlines()):
            done = subprocess.run(
                ["bash", "-c", line],
                cwd=self.folder,
                env=environment(),
                capture_output=True,
                text=True,
                timeout=500,
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
            self.said += done.stdout
            runs = [*self.folder.glob("runs/*"), *self.folder.glob("emulations/*")]
            if runs:
                self.words["RUN"] = max(runs, key=lambda run: run.stat().st_ctime).name

    def start(self, line: str) -> str:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {line}"],
            cwd=self.folder,
            env=environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        self.stack.callback(process.wait, ANSWER_S)
        self.stack.callback(process.terminate)
        assert process.stdout is not None
        self.stack.callback(process.stdout.close)
        found = re.search(r"/dev/\S+", process.stdout.readline())
        assert found is not None
        return found[0]


def environment() -> dict[str, str]:
    """A shell in which the environment is active."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "120"}
