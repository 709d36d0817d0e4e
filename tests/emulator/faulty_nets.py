"""Models that end or fail the process that trains them."""

import os

from torch import Tensor, nn


class Ends(nn.Linear):
    def __init__(self, classes: int) -> None:
        super().__init__(4, classes)

    def forward(self, x: Tensor) -> Tensor:
        os._exit(9)


class Fails(nn.Linear):
    def __init__(self, classes: int) -> None:
        super().__init__(4, classes)

    def forward(self, x: Tensor) -> Tensor:
        raise ArithmeticError("seven is not a prime")
