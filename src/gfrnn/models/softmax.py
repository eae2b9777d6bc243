"""The softmax over symbols and its cost, in one pass. N rows, K features, V symbols."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from gfrnn import parameters
from gfrnn.checks import no_autocast, products
from gfrnn.ops import cpu
from gfrnn.products import BFLOAT16, rounded


class SymbolNats(torch.autograd.Function):
    """-ln p(target) of softmax(features weight^T + bias), row by row.

    One (N, V) buffer serves as logits, as probabilities, and as their gradient: log-probabilities are never kept,
    and the backward pass starts from the finished gradient p - onehot(target). The products are in the weight's
    precision, or in bfloat16 where autocast asks for that (products.py); the softmax and the cost are in float32 at
    least.
    """

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, products: torch.dtype | None
    ) -> Tensor:
        with no_autocast(weight):
            logits = product(features.to(weight.dtype), weight.t(), products, bias)
        keep = any(ctx.needs_input_grad)
        ctx.products, ctx.fused = products, fits_op(logits)
        if ctx.fused:
            if keep:
                ctx.save_for_backward(features, weight, logits)
            return cpu.softmax_nats_(logits, targets, keep)
        buffer = logits.to(torch.promote_types(logits.dtype, torch.float32))
        buffer.sub_(buffer.amax(1, keepdim=True))
        index = targets[:, None]
        picked = buffer.gather(1, index).squeeze(1)
        total = buffer.exp_().sum(1)
        nats = total.log().sub_(picked)
        if keep:
            buffer.div_(total[:, None])
            buffer.scatter_add_(1, index, buffer.new_full((), -1.0).expand_as(index))
            ctx.save_for_backward(features, weight, buffer)
        return nats

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        features, weight, difference = ctx.saved_tensors
        need, products = ctx.needs_input_grad, ctx.products
        if ctx.fused:
            d_logits, d_bias = cpu.softmax_backward(difference, cotangents[0], products is not None)
        else:
            d_logits = factor((difference * cotangents[0][:, None]).to(weight.dtype), products)
            d_bias = d_logits.sum(0)
        with no_autocast(weight):
            return (
                product(d_logits, weight, products).to(features.dtype) if need[0] else None,
                product(d_logits.t(), features.to(weight.dtype), products) if need[1] else None,
                d_bias if need[2] else None,
                None,
                None,
            )


def fits_op(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.dtype == torch.float32 and not cpu.why_unavailable()


def factor(tensor: Tensor, products: torch.dtype | None) -> Tensor:
    return tensor if products is None else rounded(tensor)


def product(a: Tensor, b: Tensor, products: torch.dtype | None, bias: Tensor | None = None) -> Tensor:
    """a (M, K) times b (K, N), plus bias."""
    if products is not None and fits_op(a):
        return cpu.rounded_product(a, b, bias)
    a, b = factor(a, products), factor(b, products)
    return a @ b if bias is None else torch.addmm(bias, a, b)


def symbol_nats(features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """Cost in nats of each target: features (..., K), weight (V, K), bias (V,), targets (...) -> (...).

    >>> symbol_nats(torch.zeros(2, 3), torch.zeros(4, 3), torch.zeros(4), torch.tensor([0, 3])).exp()
    tensor([4., 4.])
    """
    rows = features.reshape(-1, features.shape[-1])
    nats = SymbolNats.apply(rows, weight, bias, targets.reshape(-1), products(weight))
    return nats.view(targets.shape)


class SoftmaxHead(nn.Linear):
    """Features to logits. Starts as the paper's: weights uniform(-0.08, 0.08), bias 0."""

    def reset_parameters(self) -> None:
        parameters.put(self.weight, parameters.uniform(self.weight))
        nn.init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """Logits. Under autocast in bfloat16 only the factors are rounded: the logits stay in float32."""
        if products(self.weight) is None or input.dtype != self.weight.dtype:
            return super().forward(input)
        with no_autocast(self.weight):
            rows = BFLOAT16(self.weight, input.reshape(-1, input.shape[-1]))
            rows = rows + BFLOAT16.bias(self.bias, len(rows))
            return rows.view(*input.shape[:-1], -1)

    def nats(self, features: Tensor, targets: Tensor) -> Tensor:
        """Cost in nats of each target: features (..., K), targets (...) -> (...)."""
        return symbol_nats(features, self.weight, self.bias, targets)
