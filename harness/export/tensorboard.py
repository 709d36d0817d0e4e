"""A run as TensorBoard event files, written with the ``tensorboard`` package (extra ``tracking``).

Every emulation and every bench job becomes a run of TensorBoard. The step is the round or the epoch. The time
of a point is the moment the run was created plus its virtual time, so that the axis "relative" shows the
emulated seconds (or those since the recording began) and not the speed of this machine.
"""

from __future__ import annotations

from pathlib import Path

from harness.export.curves import Curves, RunCurves, run_curves
from harness.results.stored_run import StoredRun
from joulefleet.errors import MissingExtra
from joulefleet.files import new_folder
from joulefleet.install_hint import install_hint

EVENTS_FILE = "events.out.tfevents.0.joulefleet"
"""TensorBoard reads what has ``tfevents`` in its name."""
_VERSION = "brain.Event:2"


def export_tensorboard(run: StoredRun, out: Path) -> dict[str, int]:
    """Add a folder for a run to a log folder of TensorBoard; returns the points of each event file.

    Args:
        run: The run.
        out: What ``tensorboard --logdir`` is given; it may hold other runs.

    Raises:
        MissingExtra: The package is not installed.
        StorageError: The run was exported there before, or the folder cannot be written.
        DataQualityError: The run has no curves.
    """
    try:
        from tensorboard.compat.proto import event_pb2  # noqa: F401 - asked for before anything is read
    except ImportError as error:
        raise MissingExtra(
            "writing TensorBoard files needs the package tensorboard", hint=install_hint("tracking")
        ) from error
    found = run_curves(run)
    points = {}
    with new_folder(out / run.path.name) as folder:
        for part in found.parts:
            place = folder / part.name
            place.mkdir(parents=True)
            _write(place / EVENTS_FILE, found, part)
            points[f"{run.path.name}/{part.name}/{EVENTS_FILE}"] = part.points
    return points


def _write(path: Path, found: RunCurves, part: Curves) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.plugins.scalar.summary_v2 import scalar_pb
    from tensorboard.summary.writer.record_writer import RecordWriter

    start_s = found.record.created_utc.timestamp()
    with path.open("xb") as file:
        writer = RecordWriter(file)
        writer.write(Event(wall_time=start_s, file_version=_VERSION).SerializeToString())
        for name, points in part.curves.items():
            for point in points:
                # Where the number came from is its description, which TensorBoard shows beside the chart.
                summary = scalar_pb(f"{part.what}/{name}", point.value, description=part.basis)
                event = Event(wall_time=start_s + point.after_s, step=point.step, summary=summary)
                writer.write(event.SerializeToString())
        writer.flush()
