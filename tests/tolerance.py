"""Assertions by the one policy of when two results count as equal (gfrnn/bench/tolerance.py)."""

from __future__ import annotations

from typing import Any

import torch

from gfrnn.bench.tolerance import allowed, error


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
    actual: dict[str, Any],
    truth: dict[str, Any],
    same_dtype: dict[str, Any] | None,
    terms: int,
    products: torch.dtype | None = None,
) -> None:
    """One computation's results, by name, agree with the truth.

    The reference's error is the worst of all its results: that of a single number may be small by luck.
    """
    assert actual.keys() == truth.keys()
    reference = 0.0 if same_dtype is None else max(error(same_dtype[name], truth[name]) for name in truth)
    for name, tensor in actual.items():
        found, limit = error(tensor, truth[name]), allowed(tensor.dtype, reference, terms, products)
        assert found <= limit, f"{name}: error {found:.3g}, allowed {limit:.3g} in {tensor.dtype}"
