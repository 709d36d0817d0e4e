"""A run as an experiment of MLflow's file store (``mlruns``): plain files, written without the package.

::

    <out>/<experiment>/meta.yaml                 the run
    <out>/<experiment>/<id>/meta.yaml            one emulation, or one job of the bench
    <out>/<experiment>/<id>/{params,tags}/NAME   a value each
    <out>/<experiment>/<id>/metrics/NAME         lines of: milliseconds, value, step

Times are the moment the run was created plus virtual time, as in `harness.export.tensorboard`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.export.curves import Curves, Point, RunCurves, run_curves
from harness.results.stored_run import StoredRun
from joulefleet.files import new_folder

_NOT_A_NAME = re.compile(r"[^\w./ :-]", re.ASCII)
"""Characters that MLflow does not allow in names of metrics, parameters and tags."""
_LONGEST_VALUE = 6000
"""Characters of a parameter (MLflow: ``MAX_PARAM_VAL_LENGTH``)."""
_RUNNING, _FINISHED, _KILLED = 1, 3, 5
"""Numbers of MLflow's ``RunStatus``."""
_LOCAL = 4
"""MLflow's ``SourceType.LOCAL``."""


def export_mlflow(run: StoredRun, out: Path) -> dict[str, int]:
    """Add a run to an MLflow file store as an experiment; returns the points of each of its runs.

    Args:
        run: The run.
        out: The store, what ``MLFLOW_TRACKING_URI`` names; it may hold other experiments.

    Raises:
        StorageError: The run was exported there before, or the folder cannot be written.
        DataQualityError: The run has no curves.
    """
    found = run_curves(run)
    experiment = _experiment_id(found)
    points = {}
    with new_folder(out / experiment) as folder:
        final = (out / experiment).resolve()
        _write_yaml(folder / "meta.yaml", _experiment_meta(found, run.path.name, experiment, final))
        for part in found.parts:
            identity = _digest(found.record.run_id, part.name)[:32]
            _write_part(folder / identity, found, part, experiment, final)
            points[f"{experiment}/{identity} ({part.name})"] = part.points
    return points


def _experiment_id(found: RunCurves) -> str:
    """MLflow's own are numbers of 18 digits."""
    return str(10**17 + int(_digest(found.record.run_id, found.record.name), 16) % (9 * 10**17))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _experiment_meta(found: RunCurves, name: str, experiment: str, final: Path) -> dict[str, Any]:
    created_ms = _milliseconds(found, 0.0)
    return {
        "artifact_location": final.as_uri(),
        "creation_time": created_ms,
        "experiment_id": experiment,
        "last_update_time": created_ms,
        "lifecycle_stage": "active",
        "name": name,
    }


def _write_part(folder: Path, found: RunCurves, part: Curves, experiment: str, final: Path) -> None:
    for name in ("artifacts", "metrics", "params", "tags"):
        (folder / name).mkdir(parents=True)
    _write_yaml(folder / "meta.yaml", _run_meta(folder.name, found, part, experiment, final))
    for name, value in part.settings.items():
        _file(folder / "params", name).write_text(value[:_LONGEST_VALUE], encoding="utf-8")
    for name, value in _tags(found, part).items():
        _file(folder / "tags", name).write_text(value, encoding="utf-8")
    for name, points in part.curves.items():
        lines = [_line(found, point) for point in points]
        _file(folder / "metrics", name).write_text("".join(lines), encoding="utf-8")


def _run_meta(identity: str, found: RunCurves, part: Curves, experiment: str, final: Path) -> dict[str, Any]:
    return {
        "artifact_uri": (final / identity / "artifacts").as_uri(),
        "end_time": _milliseconds(found, part.end_s) if part.finished else None,
        "entry_point_name": "",
        "experiment_id": experiment,
        "lifecycle_stage": "active",
        "run_id": identity,
        "run_name": part.name,
        "run_uuid": identity,
        "source_name": "joulefleet",
        "source_type": _LOCAL,
        "source_version": "",
        "start_time": _milliseconds(found, 0.0),
        "status": _FINISHED if part.finished else _RUNNING if found.state == "running" else _KILLED,
        "tags": [],
        "user_id": "",
    }


def _tags(found: RunCurves, part: Curves) -> dict[str, str]:
    """Who made it and where its numbers come from; MLflow shows the note at the top of the run."""
    return {
        "mlflow.runName": part.name,
        "mlflow.note.content": part.basis,
        "joulefleet.run": found.record.run_id,
        "joulefleet.kind": found.record.kind,
        "joulefleet.version": found.record.host.get("version", ""),
        **{f"joulefleet.{topic}": text for topic, text in part.origin.items()},
    }


def _line(found: RunCurves, point: Point) -> str:
    return f"{_milliseconds(found, point.after_s)} {point.value!r} {point.step}\n"


def _milliseconds(found: RunCurves, after_s: float) -> int:
    return round((found.record.created_utc.timestamp() + after_s) * 1000)


def _file(folder: Path, name: str) -> Path:
    """Where a value of this name is; a slash makes a folder, as in MLflow itself, but none outside."""
    parts = _NOT_A_NAME.sub("_", name).split("/")
    path = folder.joinpath(*("_" if part in ("", ".", "..") else part for part in parts))
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _write_yaml(path: Path, values: Mapping[str, Any]) -> None:
    """A flat mapping; every JSON value is a YAML value."""
    lines = [f"{name}: {json.dumps(value)}\n" for name, value in values.items()]
    path.write_text("".join(lines), encoding="utf-8")
