"""Large products of matrices, the fastest arithmetic of a core: what a training step is held against."""
# mypy: ignore-errors

import torch
from block import blocks, done

torch.set_num_threads(1)
SIZE, COUNT = 2048, 3
a, b = torch.randn(2, SIZE, SIZE)
for _ in blocks():
    for _ in range(COUNT):
        c = a @ b
    done(float(c[0, 0]))
