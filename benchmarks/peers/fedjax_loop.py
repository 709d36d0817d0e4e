"""Google's FedJAX: its jitted loop over clients, written as its own federated averaging writes it."""
# mypy: ignore-errors

import os

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"  # as the others

import fedjax
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from block import (
    BATCH,
    CHOSEN,
    EPOCHS,
    LEARNING_RATE,
    MOMENTUM,
    SAMPLES,
    STEPS,
    blocks,
    chosen,
    done,
    samples_of,
    start_arrays,
)


def lenet5(x):
    """Logits of images with their channels last."""
    for channels, padding in ((6, "SAME"), (16, "VALID")):
        x = hk.max_pool(jax.nn.relu(hk.Conv2D(channels, 5, padding=padding)(x)), 2, 2, "VALID")
    x = x.reshape(len(x), -1)
    for size in (120, 84):
        x = jax.nn.relu(hk.Linear(size)(x))
    return hk.Linear(10)(x)


def start(model):
    """The weights of `block`, in the order and layout of haiku; flattened images have channels last here."""
    given = start_arrays()
    layers = zip(
        ("conv1", "conv2", "fc1", "fc2", "fc3"), model.init(jax.random.PRNGKey(0), IMAGES), strict=True
    )
    params = {}
    for ours, theirs in layers:
        w = given[f"{ours}.weight"]
        if ours.startswith("conv"):
            w = w.transpose(2, 3, 1, 0)
        else:
            w = w.reshape(120, 16, 5, 5).transpose(2, 3, 1, 0).reshape(400, 120) if ours == "fc1" else w.T
        params[theirs] = {"w": jnp.asarray(w), "b": jnp.asarray(given[f"{ours}.bias"])}
    return params


IMAGES = np.zeros((1, 28, 28, 1), np.float32)
model = hk.without_apply_rng(hk.transform(lenet5))
optimiser = fedjax.optimizers.sgd(LEARNING_RATE, MOMENTUM)


def loss_of(params, batch):
    """Mean over the batch."""
    log_p = jax.nn.log_softmax(model.apply(params, batch["x"]))
    return -jnp.mean(jnp.take_along_axis(log_p, batch["y"][:, None], 1))


def client_init(params, _):
    """A client starts from the global weights."""
    return {"params": params, "opt_state": optimiser.init(params)}


def client_step(state, batch):
    """One batch."""
    loss, gradients = jax.value_and_grad(loss_of)(state["params"], batch)
    opt_state, params = optimiser.apply(gradients, state["opt_state"], state["params"])
    return {"params": params, "opt_state": opt_state}, loss


def client_final(params, state):
    """What a client sends."""
    return jax.tree_util.tree_map(lambda a, b: a - b, params, state["params"])


def batches(client, block):
    """A client's samples, as FedJAX shuffles them."""
    x, y = samples_of(client)
    data = fedjax.ClientDataset({"x": x.transpose(0, 2, 3, 1), "y": y.astype(np.int32)})
    return data.shuffle_repeat_batch(
        batch_size=BATCH, num_epochs=EPOCHS, drop_remainder=False, seed=block * 1000 + client
    )


params = start(model)
for_each_client = fedjax.for_each_client(client_init, client_step, client_final, with_step_result=True)
for block in blocks():
    work = [(client, batches(client, block), client) for client in chosen(block)]
    total, losses = fedjax.tree_util.tree_zeros_like(params), []
    for _, delta, found in for_each_client(params, work):
        total = fedjax.tree_util.tree_add(total, fedjax.tree_util.tree_weight(delta, 1 / CHOSEN))
        losses.append(found)
    after = jax.tree_util.tree_map(lambda a, b: a - b, params, total)
    jax.block_until_ready(after)
    # Batches run on across epochs, so that the last one of 94 is short, not each one of 5.
    assert all(len(found) == -(-EPOCHS * SAMPLES // BATCH) for found in losses)
    done(float(np.mean([np.asarray(found)[-STEPS:] for found in losses])))
