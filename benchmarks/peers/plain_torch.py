"""Clients one after the other in a plain torch loop, then the mean of their weights."""
# mypy: ignore-errors

import torch
from block import CHOSEN, blocks, chosen, done
from torch_block import one_model, start_weights, train

for block in blocks():
    total, losses = None, []
    for client in chosen(block):
        model = one_model()
        model.load_state_dict(start_weights())
        losses.append(train(model, client))
        state = [value / CHOSEN for value in model.state_dict().values()]
        total = state if total is None else [a + b for a, b in zip(total, state, strict=True)]
    done(float(torch.tensor(losses).mean()))
