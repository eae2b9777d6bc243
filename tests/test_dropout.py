"""Dropout between layers: on the way up only, a function of the seed, and gone in eval mode."""

from __future__ import annotations

import cases
import torch
from cases import HIDDEN, Case, every_backend, main_cases
from tolerance import assert_close


@every_backend
@main_cases
def test_dropout_is_a_function_of_the_seed(case: Case, backend: str) -> None:
    layer, x = case.layer(backend=backend, dropout=0.5), cases.dense_input()
    plain = case.layer(backend=backend)
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(layer(x)[0])
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])
    assert torch.equal(layer.eval()(x)[0], plain(x)[0])


@every_backend
def test_dropout_spares_the_recurrent_and_output_paths(backend: str) -> None:
    """With p = 1 nothing goes up, so the layers above see only x_t (skip) and the past."""
    case = Case("lstm", "gated", input_skip=True)
    layer, x = case.layer(backend=backend, dropout=1.0, output="all"), cases.dense_input(1)
    state = cases.state_of(case)
    masks = torch.zeros(1, cases.BATCH, case.num_layers - 1, HIDDEN).numpy()
    truth = cases.ask_oracle(case, layer, x, state, dropout_masks=masks)
    output = layer(x, cases.as_hx(state))[0].unflatten(-1, (case.num_layers, HIDDEN))
    assert_close(output, truth.outputs)
    assert output[:, :, 0].abs().min() > 0


def test_dropout_keeps_the_expectation() -> None:
    """An Identity-like read-out: what goes up is scaled by 1 / (1 - p) where it is kept."""
    case = Case("tanh", "stacked", bias=False, num_layers=2)
    layer = case.layer(1, 200, dropout=0.25)
    with torch.no_grad():
        layer.weight_ih_l0.fill_(0.1)
        layer.weight_ih_l1.copy_(torch.eye(200))
    sent = torch.tanh(torch.tensor(0.1, dtype=torch.float64))
    received = torch.atanh(layer(torch.ones(1, 1, 1, dtype=torch.float64))[0]).flatten()
    kept = received[received > 1e-6]
    assert_close(kept, torch.full_like(kept, float(sent / 0.75)))
    assert 120 < len(kept) < 180
