"""When two results count as equal: one policy, one table, the same on every machine.

The error against a float64 truth may be twice that of a plain computation in the same dtype, plus a floor. The floor
is for sums of up to SHORT terms; the rounding errors of longer ones grow with the square root of their number, in
whatever order they are added.
"""

from __future__ import annotations

from typing import Any

import torch

FLOOR = {torch.float64: 1e-10, torch.float32: 1e-6, torch.bfloat16: 1e-2, torch.float16: 1e-3}
SHORT = 256


def error(actual: Any, truth: Any) -> float:
    """Largest difference, relative to the truth's largest value where that exceeds 1; infinite for a NaN."""
    actual, truth = torch.as_tensor(actual).detach().double(), torch.as_tensor(truth).detach().double()
    assert actual.shape == truth.shape, f"shape {tuple(actual.shape)}, expected {tuple(truth.shape)}"
    if truth.numel() == 0:
        return 0.0
    difference = (actual - truth).abs().max() / truth.abs().max().clamp(min=1.0)
    return float(difference.nan_to_num(nan=float("inf")))


def allowed(dtype: torch.dtype, reference_error: float = 0.0, terms: int = 1) -> float:
    """How far a result may be off, where a plain computation in the same dtype is off by `reference_error`."""
    return FLOOR[dtype] * max(1.0, terms / SHORT) ** 0.5 + 2 * reference_error


def assert_close(actual: Any, truth: Any, same_dtype: Any = None, what: str = "result") -> None:
    """`actual` agrees with `truth`; `same_dtype` is a trusted plain computation in `actual`'s own dtype."""
    actual = torch.as_tensor(actual)
    limit = allowed(actual.dtype, 0.0 if same_dtype is None else error(same_dtype, truth))
    found = error(actual, truth)
    assert found <= limit, f"{what}: error {found:.3g}, allowed {limit:.3g} in {actual.dtype}"


def assert_all_close(actual: list, truth: list, same_dtype: list | None = None, names: list[str] | None = None) -> None:
    """`assert_close` over lists of equal length."""
    names = names or [f"result {n}" for n in range(len(truth))]
    references = [None] * len(truth) if same_dtype is None else same_dtype
    for a, t, s, name in zip(actual, truth, references, names, strict=True):
        assert_close(a, t, s, name)


def assert_answers_close(
    actual: dict[str, Any], truth: dict[str, Any], same_dtype: dict[str, Any] | None, terms: int
) -> None:
    """One computation's results, by name, agree with the truth.

    The reference's error is the worst of all its results: that of a single number may be small by luck.
    """
    assert actual.keys() == truth.keys()
    reference = 0.0 if same_dtype is None else max(error(same_dtype[name], truth[name]) for name in truth)
    for name, tensor in actual.items():
        found, limit = error(tensor, truth[name]), allowed(tensor.dtype, reference, terms)
        assert found <= limit, f"{name}: error {found:.3g}, allowed {limit:.3g} in {tensor.dtype}"
