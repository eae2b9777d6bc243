"""When two results count as equal: one policy, one table, the same on every machine, for the bench and for the tests.

The error against a float64 truth may be twice that of a plain computation in the same dtype, plus a floor. The floor
is for sums of up to SHORT terms; the rounding errors of longer ones grow with the square root of their number, in
whatever order they are added. With products in bfloat16 (gfrnn/products.py) a sum's last bit decides now and then how a
factor is rounded: two right answers may differ by what one such rounding does.
"""

from typing import Any

import torch

FLOOR = {torch.float64: 1e-10, torch.float32: 1e-6, torch.bfloat16: 1e-2, torch.float16: 1e-3}
ROUNDED_FACTOR = 2.0**-8  # what rounding one factor the other way does: a unit in the last place of bfloat16
SHORT = 256


def error(actual: Any, truth: Any) -> float:
    """Largest difference, relative to the truth's largest value where that exceeds 1.

    Infinite for a NaN, and for another shape.
    """
    actual, truth = torch.as_tensor(actual).detach().double(), torch.as_tensor(truth).detach().double()
    if actual.shape != truth.shape:
        return float("inf")
    if truth.numel() == 0:
        return 0.0
    difference = (actual - truth).abs().max() / truth.abs().max().clamp(min=1.0)
    return float(difference.nan_to_num(nan=float("inf")))


def allowed(
    dtype: torch.dtype, reference_error: float = 0.0, terms: int = 1, products: torch.dtype | None = None
) -> float:
    """How far a result may be off, where a plain computation in the same dtype is off by `reference_error`.

    The truth has the same `products`, in float64.
    """
    floor = FLOOR[dtype] * max(1.0, terms / SHORT) ** 0.5
    return max(floor, ROUNDED_FACTOR if products is torch.bfloat16 else 0.0) + 2 * reference_error
