"""Apple's pfl-research: its simulated backend with federated averaging, one process."""
# mypy: ignore-errors

import numpy as np
import torch
from block import BATCH, CHOSEN, EPOCHS, LEARNING_RATE, MOMENTUM, STEPS, blocks, chosen, done
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel
from torch_block import model_class, shard, start_weights


class Model(model_class()):
    """With the two methods that pfl calls."""

    def loss(self, x, y):
        """Mean over the batch."""
        loss = torch.nn.functional.cross_entropy(self(x), y)
        losses.append(float(loss.detach()))
        return loss

    @torch.no_grad()
    def metrics(self, x, y):
        """None are asked for."""
        return {}


class Algorithm(FederatedAveraging):
    """Federated averaging without evaluation, which this benchmark is not about."""

    def get_next_central_contexts(self, *args, **kwargs):
        """Count from 1: pfl evaluates whenever the iteration is a multiple of the frequency, 0 included."""
        self._current_central_iteration = max(1, self._current_central_iteration)
        return super().get_next_central_contexts(args[0], max(1, args[1]), *args[2:], **kwargs)


losses: list[float] = []
model = Model()
for block in blocks():
    losses.clear()
    model.load_state_dict(start_weights())
    queue = iter(chosen(block))
    data = FederatedDataset(
        lambda client: Dataset(raw_data=list(shard(client)), user_id=str(client)),
        lambda queue=queue: next(queue),
    )
    Algorithm().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=2,
            evaluation_frequency=10**9,
            train_cohort_size=CHOSEN,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(training_data=data, val_data=data, postprocessors=[]),
        model=PyTorchModel(
            model,
            lambda parameters, lr: torch.optim.SGD(parameters, lr=lr, momentum=MOMENTUM),
            torch.optim.SGD(model.parameters(), lr=1.0),
        ),
        model_train_params=NNTrainHyperParams(
            local_batch_size=BATCH, local_num_epochs=EPOCHS, local_learning_rate=LEARNING_RATE
        ),
    )
    assert len(losses) == CHOSEN * EPOCHS * STEPS
    done(float(np.mean(np.reshape(losses, (CHOSEN, EPOCHS, STEPS))[:, -1])))
