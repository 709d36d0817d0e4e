"""Flower's simulation; each client runs the plain torch loop. The argument: Ray actors of one core."""
# mypy: ignore-errors

import sys

from block import CHOSEN, CLIENTS, SAMPLES, blocks, done
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch_block import one_model, start_weights, train

client_app, server_app = ClientApp(), ServerApp()


@client_app.train()
def train_client(message, context):
    """One client's work."""
    model = one_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    loss = train(model, int(context.node_config["partition-id"]))
    metrics = MetricRecord({"loss": loss, "num-examples": SAMPLES})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)


@server_app.main()
def serve(grid, context):
    """A round at each ``go``."""
    for _ in blocks():
        strategy = FedAvg(
            fraction_train=CHOSEN / CLIENTS,
            fraction_evaluate=0.0,
            min_train_nodes=CHOSEN,
            min_available_nodes=CLIENTS,
        )
        result = strategy.start(
            grid=grid, initial_arrays=ArrayRecord(start_weights()), num_rounds=1, timeout=600
        )
        done(float(result.train_metrics_clientapp[1]["loss"]))


if __name__ == "__main__":
    resources = {
        "init_args": {"num_cpus": int(sys.argv[1])},
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
    }
    run_simulation(server_app, client_app, num_supernodes=CLIENTS, backend_config=resources)
