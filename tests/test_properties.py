"""What must hold for any weights: time, batch, padding, state and dropout behave as a sequence layer's should."""

from __future__ import annotations

from typing import Any

import cases
import pytest
import torch
from cases import HIDDEN, INPUT, TIME, Case, backends_take_turns, every_backend, main_cases, taking_turns
from tolerance import assert_all_close, assert_close
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

KINDS = ("dense", "integer")


def make_input(kind: str, time: int = TIME, batch: int = 3) -> torch.Tensor:
    return cases.dense_input(time, batch) if kind == "dense" else cases.integer_input(time, batch)


def row(state: Any, b: int) -> Any:
    """Row b of a state, still batched."""
    return cases.as_hx([part[:, b : b + 1] for part in cases.tensors(state)])


@taking_turns("kind, backend", KINDS, cases.backends())
def test_step_by_step_is_the_whole_sequence(case: Case, kind: str, backend: str) -> None:
    layer, x = case.layer(backend=backend), make_input(kind)
    state = cases.as_hx(cases.state_of(case, batch=3))
    output, last = layer(x, state)
    steps = []
    for x_t in x:
        y_t, state = layer.step(x_t, state)
        steps.append(y_t)
    assert_all_close([torch.stack(steps), *cases.tensors(state)], [output, *cases.tensors(last)])


@every_backend
@main_cases
def test_step_from_nothing_starts_at_the_initial_state(case: Case, backend: str) -> None:
    layer, x = case.layer(backend=backend), cases.dense_input(1, 3)
    zero = layer.initial_state(3)
    for part in cases.tensors(zero):
        assert part.shape == (case.num_layers, 3, HIDDEN)
        assert part.dtype == torch.float64
        assert not part.any()
    truth = cases.tensors(layer(x))
    for state in (None, zero):
        y_t, last = layer.step(x[0], state)
        assert_all_close([y_t[None], *cases.tensors(last)], truth)
    y_t, last = layer.step(x[0, 1])
    assert_all_close([y_t, *cases.tensors(last)], [truth[0][0, 1], *(part[:, 1] for part in truth[1:])])


@backends_take_turns
def test_two_halves_are_the_whole(case: Case, backend: str) -> None:
    layer, x = case.layer(backend=backend, output="all"), cases.dense_input()
    output, last, gates = layer(x, cases.as_hx(cases.state_of(case)), return_gates=True)
    first, middle, first_gates = layer(x[:2], cases.as_hx(cases.state_of(case)), return_gates=True)
    second, end, second_gates = layer(x[2:], middle, return_gates=True)
    joined = [torch.cat([first, second]), *cases.tensors(end), torch.cat([first_gates, second_gates])]
    assert_all_close(joined, [output, *cases.tensors(last), gates])


@taking_turns("kind, backend", KINDS, cases.backends())
def test_the_future_cannot_change_the_past(case: Case, kind: str, backend: str) -> None:
    layer, x = case.layer(backend=backend, output="all"), make_input(kind)
    changed = x.clone()
    changed[3] = (changed[3] + 1) % INPUT
    before, _, gates_before = layer(x, return_gates=True)
    after, _, gates_after = layer(changed, return_gates=True)
    assert torch.equal(before[:3], after[:3])
    assert torch.equal(gates_before[:3], gates_after[:3])
    assert (before[3] != after[3]).any(dim=-1).all()


@backends_take_turns
def test_rows_of_the_batch_do_not_know_each_other(case: Case, backend: str) -> None:
    layer, x = case.layer(backend=backend, output="all"), cases.dense_input(TIME, 5)
    state = cases.state_of(case, batch=5)
    order = torch.tensor([3, 0, 4, 2, 1])
    output, *last, gates = cases.tensors(layer(x, cases.as_hx(state), return_gates=True))
    permuted = cases.tensors(layer(x[:, order], cases.as_hx([part[:, order] for part in state]), return_gates=True))
    assert_all_close(permuted, [output[:, order], *(part[:, order] for part in last), gates[:, order]])


@taking_turns("kind, backend", KINDS, cases.backends())
def test_ragged_lengths_are_each_row_alone(case: Case, kind: str, backend: str) -> None:
    layer, x = case.layer(backend=backend), make_input(kind)
    lengths = [2, TIME, 1]
    state = cases.as_hx(cases.state_of(case, batch=3))
    for b, length in enumerate(lengths):  # what stands in the padding must not matter
        x[length:, b] = float("nan") if kind == "dense" else INPUT + 99
    output, *last, gates = cases.tensors(layer(x, state, lengths=torch.tensor(lengths), return_gates=True))
    for b, length in enumerate(lengths):
        alone = cases.tensors(layer(x[:length, b : b + 1], row(state, b), return_gates=True))
        together = [output[:length, b : b + 1], *(part[:, b : b + 1] for part in last), gates[:length, b : b + 1]]
        assert_all_close(together, alone)
        assert not output[length:, b].any()
        assert not gates[length:, b].any()


@every_backend
@main_cases
def test_padding_gets_no_gradient(case: Case, backend: str) -> None:
    layer, x, lengths = case.layer(backend=backend, output="all"), cases.dense_input(TIME, 3), [2, TIME, 1]
    for b, length in enumerate(lengths):
        x[length:, b] = float("nan")
    x.requires_grad_()
    sum(part.sum() for part in cases.tensors(layer(x, lengths=torch.tensor(lengths)))).backward()
    for b, length in enumerate(lengths):
        assert not x.grad[length:, b].any()
        assert x.grad[:length, b].abs().sum(dim=-1).all()
    for name, parameter in layer.named_parameters():
        assert parameter.grad.isfinite().all(), name


@every_backend
@pytest.mark.parametrize("sort", [True, False])
@taking_turns("kind", KINDS, among=cases.MAIN, whole=())
def test_packed_is_lengths(case: Case, kind: str, sort: bool, backend: str) -> None:
    layer, x = case.layer(backend=backend), make_input(kind)
    lengths = torch.tensor([5, 3, 2] if sort else [2, 5, 3])
    state = cases.as_hx(cases.state_of(case, batch=3))
    packed = pack_padded_sequence(x, lengths, enforce_sorted=sort)
    output, last, gates = layer(packed, state, return_gates=True)
    assert isinstance(output, PackedSequence)
    assert isinstance(gates, PackedSequence)
    assert torch.equal(output.batch_sizes, packed.batch_sizes)
    found = [pad_packed_sequence(output, total_length=TIME)[0], *cases.tensors(last)]
    found.append(pad_packed_sequence(gates, total_length=TIME)[0])
    assert_all_close(found, cases.tensors(layer(x, state, lengths=lengths, return_gates=True)))
    defaulted = cases.tensors(layer(x, lengths=lengths))
    assert_close(pad_packed_sequence(layer(packed)[0], total_length=TIME)[0], defaulted[0])


@every_backend
@taking_turns("kind", KINDS, among=cases.MAIN, whole=())
def test_batch_first_and_unbatched(case: Case, kind: str, backend: str) -> None:
    layer, x = case.layer(backend=backend), make_input(kind)
    state, lengths = cases.state_of(case, batch=3), torch.tensor([2, TIME, 4])
    output, *last, gates = cases.tensors(layer(x, cases.as_hx(state), return_gates=True))
    flipped = case.layer(backend=backend, batch_first=True)
    found = cases.tensors(flipped(x.transpose(0, 1), cases.as_hx(state), return_gates=True))
    assert_all_close(found, [output.transpose(0, 1), *last, gates.transpose(0, 1)])
    ragged = flipped(x.transpose(0, 1), lengths=lengths)[0]
    assert_close(ragged, layer(x, lengths=lengths)[0].transpose(0, 1))
    for either in (layer, flipped):
        alone = cases.tensors(either(x[:, 1], cases.as_hx([part[:, 1] for part in state]), return_gates=True))
        assert_all_close(alone, [output[:, 1], *(part[:, 1] for part in last), gates[:, 1]])
        assert either(x[:, 1])[0].shape == (TIME, HIDDEN)


@backends_take_turns
def test_integers_are_one_hot_vectors(case: Case, backend: str) -> None:
    layer, x = case.layer(backend=backend), cases.integer_input()
    vectors = torch.nn.functional.one_hot(x, INPUT).double()
    truth = cases.tensors(layer(vectors, return_gates=True))
    assert_all_close(cases.tensors(layer(x, return_gates=True)), truth)


@every_backend
@main_cases
def test_output_all_and_return_gates(case: Case, backend: str) -> None:
    layer, x = case.layer(backend=backend), cases.dense_input()
    everything = case.layer(backend=backend, output="all")
    output, *last = cases.tensors(layer(x))
    wide, *wide_last, gates = cases.tensors(everything(x, return_gates=True))
    assert wide.shape == (*output.shape[:2], case.num_layers * HIDDEN)
    assert_all_close([wide[..., -HIDDEN:], *wide_last], [output, *last])
    assert_close(wide[-1].unflatten(-1, (case.num_layers, HIDDEN)).transpose(0, 1), last[0])
    eye = torch.eye(case.num_layers, dtype=torch.float64)
    if case.wiring == "gated":
        assert ((gates > 0) & (gates < 1)).all()
        assert gates.flatten(2).std(dim=-1).min() > 0.01
    else:
        fixed = eye if case.wiring == "stacked" else torch.ones_like(eye)
        assert torch.equal(gates, fixed.expand_as(gates))


@backends_take_turns
def test_nothing_uninitialised_is_read(case: Case, backend: str, nan_in_fresh_memory: None) -> None:
    assert torch.empty(3).isnan().all()
    layer, x = case.layer(backend=backend), cases.dense_input().requires_grad_()
    lengths = torch.tensor([TIME - 2, TIME])
    results = cases.tensors(layer(x, lengths=lengths, return_gates=True))
    results += cases.tensors(layer(cases.integer_input()))
    fresh = cases.LAYERS[case.unit](INPUT, HIDDEN, **case.options)
    for tensor in [*results, *fresh.parameters()]:
        assert tensor.isfinite().all()
    sum(tensor.sum() for tensor in results).backward()
    for tensor in [x, *layer.parameters()]:
        assert tensor.grad.isfinite().all()


@taking_turns("dtype, backend", [torch.float32, torch.float64], cases.backends())
def test_saturating_weights_stay_finite(case: Case, dtype: torch.dtype, backend: str) -> None:
    layer = case.layer(backend=backend, output="all", dtype=dtype)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(100)
    x = cases.dense_input(dtype=dtype).requires_grad_()
    state = [part.requires_grad_() for part in cases.state_of(case, dtype=dtype)]
    results = cases.tensors(layer(x, cases.as_hx(state), return_gates=True))
    sum(tensor.sum() for tensor in results).backward()
    for tensor in [*results, x.grad, *(part.grad for part in state), *(p.grad for p in layer.parameters())]:
        assert tensor.isfinite().all()
    assert results[0].abs().max() > 0.5


@every_backend
@main_cases
def test_memory_layout_does_not_matter(case: Case, backend: str) -> None:
    layer, x = case.layer(backend=backend), cases.dense_input(TIME, 3)
    state = cases.state_of(case, batch=3)
    truth = cases.tensors(layer(x, cases.as_hx(state)))
    strided = torch.stack([x, x], dim=-1)[..., 0]
    turned = [part.transpose(0, 2).contiguous().transpose(0, 2) for part in state]
    assert not strided.is_contiguous()
    assert_all_close(cases.tensors(layer(strided, cases.as_hx(turned))), truth)
    same_row = x[:, :1].expand(-1, 3, -1)
    assert_all_close(cases.tensors(layer(same_row)), cases.tensors(layer(same_row.contiguous())))


@every_backend
@main_cases
def test_an_empty_batch_works(case: Case, backend: str) -> None:
    layer = case.layer(backend=backend)
    x = cases.dense_input(TIME, 0).requires_grad_()
    output, *last, gates = cases.tensors(layer(x, return_gates=True))
    assert output.shape == (TIME, 0, HIDDEN)
    assert gates.shape == (TIME, 0, case.num_layers, case.num_layers)
    assert all(part.shape == (case.num_layers, 0, HIDDEN) for part in last)
    output.sum().backward()
    assert x.grad.shape == x.shape
    assert all(not p.grad.any() for p in layer.parameters() if p.grad is not None)
    assert layer(cases.integer_input(TIME, 0))[0].shape == (TIME, 0, HIDDEN)
    assert layer(x, lengths=torch.zeros(0, dtype=torch.long))[0].shape == (TIME, 0, HIDDEN)


def test_repr_says_what_differs_from_the_default() -> None:
    text = repr(cases.LAYERS["lstm"](5, 4, 2, batch_first=True, wiring="gated", gates_see="own", dropout=0.5))
    for part in (
        "GFLSTM(",
        "5, 4",
        "num_layers=2",
        "batch_first=True",
        "gates_see='own'",
        "wiring='gated'",
        "dropout=0.5",
    ):
        assert part in text
    assert "input_skip" not in text
