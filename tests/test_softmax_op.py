"""The operators for the cost of a softmax and its gradient, against float64 and against torch in the same dtype."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tolerance import assert_close
from torch import Tensor

from gfrnn.models import softmax
from gfrnn.ops import cpu
from gfrnn.products import rounded

pytestmark = pytest.mark.skipif(bool(cpu.why_unavailable()), reason="; ".join(cpu.why_unavailable()))

SIZES = [(1, 1), (3, 2), (7, 15), (5, 16), (9, 17), (40, 205), (600, 33)]  # rows, symbols


def problem(N: int, V: int, scale: float = 3.0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(N + V)
    logits = scale * torch.randn(N, V, generator=generator)
    return logits, torch.randint(0, V, (N,), generator=generator), torch.randn(N, generator=generator)


def plainly(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    logs = logits.log_softmax(1)
    picked = torch.nn.functional.one_hot(targets, logits.shape[1])
    return -logs.gather(1, targets[:, None]).squeeze(1), logs.exp() - picked


@pytest.mark.parametrize("scale", [0.1, 3.0, 40.0])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_cost_and_difference(size: tuple[int, int], scale: float) -> None:
    logits, targets, _ = problem(*size, scale)
    truth, same_dtype = plainly(logits.double(), targets), plainly(logits, targets)
    costs_only, kept = logits.clone(), logits.clone()
    nats = cpu.softmax_nats_(kept, targets, True)
    assert_close(nats, truth[0], same_dtype[0], "nats")
    assert_close(kept, truth[1], same_dtype[1], "difference")
    assert torch.equal(cpu.softmax_nats_(costs_only, targets, False), nats)


@pytest.mark.parametrize("rounds", [False, True])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_gradients(size: tuple[int, int], rounds: bool) -> None:
    logits, targets, d_nats = problem(*size)
    _, difference = plainly(logits, targets)
    exact = difference * d_nats[:, None]
    factors = rounded(exact) if rounds else exact
    d_logits, d_bias = cpu.softmax_backward(difference, d_nats, rounds)
    assert torch.equal(d_logits, factors)
    assert_close(d_bias, factors.double().sum(0), factors.sum(0), "bias")
    if rounds and size[1] > 2:
        assert not torch.equal(d_logits, exact)


def test_the_number_of_threads_changes_no_bit() -> None:
    logits, targets, d_nats = problem(700, 205)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            difference = logits.clone()
            nats = cpu.softmax_nats_(difference, targets, True)
            found.append((nats, difference, *cpu.softmax_backward(difference, d_nats, True)))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


CHILD = """
from gfrnn.ops import cpu
from test_softmax_op import plainly, problem
from tolerance import assert_close

logits, targets, _ = problem(40, 205)
truth, same_dtype = plainly(logits.double(), targets), plainly(logits, targets)
assert_close(cpu.softmax_nats_(logits, targets, True), truth[0], same_dtype[0], "nats")
assert_close(logits, truth[1], same_dtype[1], "difference")
print(cpu.isa())
"""


@pytest.mark.parametrize("isa", ["generic", "avx2"])
def test_lesser_instruction_sets(isa: str) -> None:
    if isa == "avx2" and torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        pytest.skip("this CPU has no AVX2")
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])  # the same package, wherever it is
    environment = {**os.environ, "GFRNN_ISA": isa, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", CHILD], env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == isa


def test_what_is_no_number_stays_in_its_row() -> None:
    logits, targets, _ = problem(6, 40)
    logits[1, 3], logits[2, 39], logits[4, 0] = math.nan, math.inf, -math.inf
    targets[4] = 0
    nats = cpu.softmax_nats_(logits, targets, True)
    assert nats[1].isnan() and nats[2].isnan() and nats[4] == math.inf
    assert nats[[0, 3, 5]].isfinite().all() and logits[[0, 3, 5]].isfinite().all()


def test_they_keep_torchs_rules() -> None:
    logits, targets, d_nats = problem(5, 20)
    torch.library.opcheck(torch.ops.gfrnn.softmax_nats_.default, (logits.clone(), targets, True))
    torch.library.opcheck(torch.ops.gfrnn.softmax_nats_.default, (logits.clone(), targets, False))
    torch.library.opcheck(torch.ops.gfrnn.softmax_backward.default, (logits, d_nats, True))


@pytest.mark.parametrize(
    ("logits", "targets", "said"),
    [
        (torch.zeros(3), torch.zeros(3, dtype=torch.int64), "logits must have 2 dimensions"),
        (torch.zeros(3, 4).double(), torch.zeros(3, dtype=torch.int64), "logits has the wrong dtype"),
        (torch.zeros(4, 3).t(), torch.zeros(3, dtype=torch.int64), "logits must be contiguous"),
        (torch.zeros(3, 4), torch.zeros(2, dtype=torch.int64), r"targets must have shape \(3\)"),
        (torch.zeros(3, 4), torch.tensor([0, 4, 1]), "target 4 is out of range, there are 4 symbols"),
        (torch.zeros(3, 4), torch.tensor([0, -1, 1]), "target -1 is out of range"),
    ],
)
def test_nonsense_is_refused(logits: Tensor, targets: Tensor, said: str) -> None:
    with pytest.raises(RuntimeError, match=said):
        cpu.softmax_nats_(logits, targets, True)


def test_no_rows_cost_nothing() -> None:
    assert cpu.softmax_nats_(torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64), True).shape == (0,)
    d_logits, d_bias = cpu.softmax_backward(torch.zeros(0, 4), torch.zeros(0), False)
    assert d_logits.shape == (0, 4) and torch.equal(d_bias, torch.zeros(4))


def test_a_backward_may_be_asked_for_twice() -> None:
    features, weight = torch.randn(30, 12, requires_grad=True), torch.randn(9, 12, requires_grad=True)
    nats = softmax.symbol_nats(features, weight, torch.zeros(9), torch.randint(0, 9, (30,))).mean()
    first = torch.autograd.grad(nats, (features, weight), retain_graph=True)
    again = torch.autograd.grad(nats, (features, weight))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
