"""The operator for one product of rounded factors, which the softmax uses under autocast."""

from __future__ import annotations

import pytest
import torch
from tolerance import assert_close
from torch import Tensor

from gfrnn.models import softmax
from gfrnn.ops import cpu
from gfrnn.products import rounded

pytestmark = pytest.mark.skipif(bool(cpu.why_unavailable()), reason="; ".join(cpu.why_unavailable()))

SIZES = [
    (1, 1, 1),
    (3, 2, 5),
    (16, 32, 32),
    (17, 33, 65),
    (40, 140, 23),
    (130, 520, 47),
    (205, 70, 64),
    (70, 2100, 40),
]  # M, K, N


def matrix(rows: int, columns: int, turned: bool, scale: float = 1.0) -> Tensor:
    return scale * (torch.randn(columns, rows).t() if turned else torch.randn(rows, columns))


@pytest.mark.parametrize("b_turned", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("a_turned", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_it_is_the_product_of_rounded_factors(size: tuple[int, int, int], a_turned: bool, b_turned: bool) -> None:
    M, K, N = size
    a, b, bias = matrix(M, K, a_turned), matrix(K, N, b_turned), torch.randn(N)
    truth = rounded(a).double() @ rounded(b).double()
    same_dtype = rounded(a) @ rounded(b)
    assert_close(cpu.rounded_product(a, b), truth, same_dtype, "product")
    assert_close(cpu.rounded_product(a, b, bias), truth + bias, same_dtype + bias, "product and bias")
    if K > 10:
        assert not torch.allclose(cpu.rounded_product(a, b).double(), a.double() @ b.double(), rtol=1e-4, atol=1e-4)


def test_other_strides_are_read_rightly() -> None:
    a, b = torch.randn(9, 50)[:, ::2], torch.randn(7, 25).t()[:, 1:6]
    assert_close(
        cpu.rounded_product(a, b), rounded(a).double() @ rounded(b).double(), rounded(a) @ rounded(b), "product"
    )


def test_the_number_of_threads_changes_no_bit() -> None:
    a, b = torch.randn(83, 450), torch.randn(450, 70)
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(cpu.rounded_product(a, b))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


def test_what_is_no_number_passes() -> None:
    a, b = torch.ones(20, 40), torch.ones(40, 20)
    a[3, 7], a[5, 1] = float("nan"), float("inf")
    c = cpu.rounded_product(a, b)
    assert c[3].isnan().all() and (c[5] == float("inf")).all()
    assert (c[[row for row in range(20) if row not in (3, 5)]] == 40).all()


def test_it_keeps_torchs_rules() -> None:
    for a, b, bias in [
        (torch.randn(4, 6), torch.randn(6, 3), torch.randn(3)),
        (torch.randn(6, 4).t(), torch.randn(3, 6).t(), None),
    ]:
        torch.library.opcheck(torch.ops.gfrnn.rounded_product.default, (a, b, bias))


@pytest.mark.parametrize(
    ("a", "b", "bias", "said"),
    [
        (torch.ones(3), torch.ones(3, 2), None, "a must have 2 dimensions"),
        (torch.ones(3, 4), torch.ones(3, 2), None, r"b must have shape \(4, 2\)"),
        (torch.ones(3, 4), torch.ones(4, 2), torch.ones(3), r"bias must have shape \(2\)"),
        (torch.ones(3, 4).double(), torch.ones(4, 2), None, "a has the wrong dtype"),
        (torch.ones(3, 0), torch.ones(0, 2), None, "a must have columns"),
    ],
)
def test_nonsense_is_refused(a: Tensor, b: Tensor, bias: Tensor | None, said: str) -> None:
    with pytest.raises(RuntimeError, match=said):
        cpu.rounded_product(a, b, bias)


def test_no_rows_are_no_rows() -> None:
    assert cpu.rounded_product(torch.ones(0, 4), torch.ones(4, 2)).shape == (0, 2)


def test_the_softmax_uses_it_and_without_it_means_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    features, weight = torch.randn(30, 40, requires_grad=True), torch.randn(9, 40, requires_grad=True)
    bias, targets = torch.randn(9, requires_grad=True), torch.randint(0, 9, (30,))

    def solve() -> list[Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            nats = softmax.symbol_nats(features, weight, bias, targets)
        return [nats, *torch.autograd.grad(nats.sum(), (features, weight, bias))]

    with_op, asked = solve(), []
    monkeypatch.setattr(cpu, "why_unavailable", lambda: asked.append(1) or ["not here"])
    without = solve()
    assert asked
    for one, other in zip(with_op, without, strict=True):
        assert_close(one, other.double(), other, "softmax")
