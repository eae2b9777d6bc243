"""Products in bfloat16: the one definition, which every backend follows.

The factors of every matrix product are rounded to bfloat16 (to nearest, ties to even; NaN and infinities stay), and
nothing else is: weights, inputs and states as they enter a product; backwards the gradient of a result, which is a
factor of what goes back and of the weights' gradients, and of which a bias's gradient is the sum. A column of W that an
index picks is a product with a one-hot vector. What is scaled by a gate or a dropout mask is rounded after that. Sums,
states, gates, gradients and weights keep their dtype.
"""

from typing import Any

import torch
from torch import Tensor

from gfrnn.equations import EXACT, Products


def rounded(tensor: Tensor) -> Tensor:
    """To bfloat16 and back.

    >>> rounded(torch.tensor([1 / 3, 1.00390625, float("inf")]))
    tensor([0.3340, 1.0000,    inf])
    """
    return tensor.to(torch.bfloat16).to(tensor.dtype)


class RoundedFactor(torch.autograd.Function):
    """Rounds; the gradient passes as it is."""

    generate_vmap_rule = True

    @staticmethod
    def forward(tensor: Tensor) -> Tensor:
        return rounded(tensor)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]


class RoundedGradient(torch.autograd.Function):
    """Passes; the gradient is rounded, being a factor of the products to come."""

    generate_vmap_rule = True

    @staticmethod
    def forward(tensor: Tensor) -> Tensor:
        return tensor.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return factor(gradients[0])


class Tangent:
    """Forward mode passes as it is. Apart, since torch.compile traces no Function that has it."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
        return tangents[0].clone()


class RoundedFactorForwards(Tangent, RoundedFactor):
    pass


class RoundedGradientForwards(Tangent, RoundedGradient):
    pass


def factor(tensor: Tensor) -> Tensor:
    function = RoundedFactor if torch.compiler.is_compiling() else RoundedFactorForwards
    number: Tensor = function.apply(tensor)
    return number


def result(tensor: Tensor) -> Tensor:
    function = RoundedGradient if torch.compiler.is_compiling() else RoundedGradientForwards
    product: Tensor = function.apply(tensor)
    return product


BFLOAT16 = Products(factor, result)


def products_in(dtype: torch.dtype | None) -> Products:
    """The products a call asks for: None stands for those of its own dtype."""
    return EXACT if dtype is None else BFLOAT16
