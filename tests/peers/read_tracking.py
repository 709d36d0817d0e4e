"""Reads an export as TensorBoard's server and MLflow's client do; prints what they see as JSON."""

import json
import os
import sys
from typing import Any


def tensorboard(folder: str) -> dict[str, Any]:
    from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
    from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
    from tensorboard.context import RequestContext

    multiplexer = EventMultiplexer().AddRunsFromDirectory(folder)
    multiplexer.Reload()
    provider = MultiplexerDataProvider(multiplexer, folder)
    asked = {"experiment_id": "", "plugin_name": "scalars"}
    series = provider.list_scalars(RequestContext(), **asked)
    points = provider.read_scalars(RequestContext(), **asked, downsample=10**6)
    return {
        run: {
            tag: {
                "description": series[run][tag].description,
                "points": [(point.step, point.wall_time, point.value) for point in found],
            }
            for tag, found in tags.items()
        }
        for run, tags in points.items()
    }


def mlflow(uri: str) -> dict[str, Any]:
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    return {
        experiment.name: {
            run.info.run_name: {
                "status": run.info.status,
                "params": run.data.params,
                "tags": run.data.tags,
                "metrics": {
                    key: [
                        (m.step, m.timestamp, m.value)
                        for m in client.get_metric_history(run.info.run_id, key)
                    ]
                    for key in run.data.metrics
                },
            }
            for run in client.search_runs([experiment.experiment_id])
        }
        for experiment in client.search_experiments()
    }


if __name__ == "__main__":
    what, *places = sys.argv[1:]
    read = {"tensorboard": tensorboard, "mlflow": mlflow}[what]
    print(json.dumps([read(place) for place in places]))
