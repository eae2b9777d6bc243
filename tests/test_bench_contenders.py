"""What the bench counts, and that it times nothing that computes something else."""

from __future__ import annotations

import dataclasses
from typing import Any

import cases
import pytest
import torch
from tiny_bench import SMALL, tiny
from torch import nn

from gfrnn import ops
from gfrnn.bench import accounting, contenders, equality, generation, sections, targets
from gfrnn.bench import memory as memory_of
from gfrnn.bench.loop import HandLoop
from gfrnn.bench.plan import LSTM, TANH, Plan, Size
from gfrnn.cli import main
from gfrnn.models import CharLM

__all__ = ["tiny"]
Capture = pytest.CaptureFixture[str]
UNITS = tuple(cases.TORCH)  # the paper's, which the hand-written loop has


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(("num_layers", "hidden_size"), [(1, 3), (3, 5)])
def test_useful_multiplications_are_the_weights_but_for_the_look_ups(
    unit: str, num_layers: int, hidden_size: int
) -> None:
    size = Size(unit, num_layers, hidden_size)
    model = contenders.our_model(size)
    V = len(model.vocabulary)
    read = 0
    for name, parameter in model.named_parameters():
        if "weight_ih" in name or "weight_ig" in name:
            read += parameter[:, V:].numel()  # every layer's first V columns are looked up
        elif "weight" in name:
            read += parameter.numel()
    assert accounting.multiply_adds(size) == read
    assert accounting.flops(size, 7, training=False) == 2 * 7 * read
    assert accounting.flops(size, 7, training=True) == 6 * 7 * read
    assert accounting.parameters(size) == contenders.count(model)
    looked_up = num_layers * (model.layer.weight_ih_l0.shape[0] + num_layers)
    biases = sum(p.numel() for name, p in model.named_parameters() if "bias" in name)
    assert accounting.bytes_per_character(size) == 4 * (read + looked_up + biases)


@pytest.mark.parametrize("unit", UNITS)
def test_peers_are_as_large_as_they_say(unit: str) -> None:
    size = Size(unit, 2, 30)
    ours = accounting.parameters(size)
    name = contenders.equal_parameters(size)
    found = contenders.count(contenders.build(name, size))
    hidden = int(name.split("x")[1])
    assert found == accounting.torch_parameters(unit, 2, hidden)
    for other in (hidden - 1, hidden + 1):
        assert abs(accounting.torch_parameters(unit, 2, other) - ours) >= abs(found - ours)
    assert contenders.equal_units(size).endswith(" 2x30")


def test_the_peer_of_the_target_has_its_number_of_parameters() -> None:
    (name,) = contenders.named_peers(LSTM)
    assert name == "nn.LSTM 3x228"
    assert round(contenders.count(contenders.build(name, LSTM)) / 1e6, 2) == 1.35
    assert {target.theirs for target in targets.TARGETS} >= {name}


@pytest.mark.parametrize("unit", UNITS)
def test_the_hand_written_loop_is_the_same_model(unit: str) -> None:
    """In float64, where nothing but rounding may differ: costs, state, gradients, and a state carried on."""
    size = Size(unit, 3, 5)
    model = contenders.our_model(size).double()
    loop = HandLoop(model)
    ids, goal = contenders.batch(2, 6)
    (found,) = equality.check("x", model, {"loop": loop}, ids, goal)
    assert found.error <= 1e-10
    whole, _ = loop.nats(ids, goal)
    first, state = loop.nats(ids[:2], goal[:2])
    rest, _ = loop.nats(ids[2:], goal[2:], state)
    torch.testing.assert_close(torch.cat([first, rest]), whole)
    assert contenders.count(loop) == contenders.count(model)


def test_the_loop_refuses_other_models() -> None:
    with pytest.raises(ValueError, match="gated, with skips"):
        HandLoop(CharLM(hidden_size=3, num_layers=2, wiring="stacked"))


def twisted(backend: ops.Backend, twist: Any) -> ops.Backend:
    """A backend whose answer passes through `twist`."""
    return dataclasses.replace(backend, scan=lambda call: twist(backend.scan(call)))


class ScaledGradient(torch.autograd.Function):
    """Right forward, a slightly wrong gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, d: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return d * 1.001


@pytest.mark.parametrize(
    "twist",
    [
        pytest.param(lambda s: s._replace(h=s.h * 1.0001), id="outputs"),
        pytest.param(lambda s: s._replace(state=s.state.map(lambda t: t + 1e-4)), id="last state"),
        pytest.param(lambda s: s._replace(h=ScaledGradient.apply(s.h)), id="gradients"),
        pytest.param(lambda s: s._replace(h=s.h * float("nan")), id="NaN"),
    ],
)
def test_a_wrong_backend_is_not_timed(twist: Any, tiny: Plan, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setitem(ops.BACKENDS, "manual", twisted(ops.BACKENDS["manual"], twist))
    monkeypatch.setattr(sections, "time_in_turn", lambda *args: pytest.fail("it was timed"))
    assert main(["bench", "--quick", "--only", "train", "--quiet"]) == 1
    error = capsys.readouterr().err
    assert "'manual' does not compute what the reference does, so nothing is timed: GF-LSTM 2x5" in error
    assert error.count("\n") == 1


def test_a_wrong_loop_is_not_timed(tiny: Plan, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    right = HandLoop.step
    monkeypatch.setattr(HandLoop, "step", lambda self, fed, state: right(self, fed * 1.0001, state))
    assert main(["bench", "--quick", "--only", "sizes", "--quiet"]) == 1
    assert "'loop' does not compute" in capsys.readouterr().err


def test_a_wrong_text_is_not_timed(tiny: Plan, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    right = CharLM.generate
    monkeypatch.setattr(CharLM, "generate", lambda self, *a, **k: right(self, *a, **k)[:-1] + b"~")
    assert main(["bench", "--quick", "--only", "generate", "--quiet"]) == 1
    assert "'manual' does not generate what the reference would" in capsys.readouterr().err


def negate(module: nn.Module) -> None:
    for parameter in module.parameters(recurse=False):
        parameter.neg_()


@pytest.mark.skipif(bool(ops.BACKENDS["cpu"].why_unavailable()), reason="needs the C++ op")
def test_half_precision_is_checked_against_rounded_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    model = contenders.our_model(SMALL)
    half = model.as_half()
    torch.testing.assert_close(half.head.weight, model.head.weight.half().float(), rtol=0, atol=0)
    torch.testing.assert_close(half.head.bias, model.head.bias, rtol=0, atol=0)
    found = generation.check_contender("cpu half", SMALL, 20)
    assert found is not None and found.error <= found.allowed
    monkeypatch.setattr(CharLM, "as_half", lambda model: model.requires_grad_(False).apply(negate))
    with pytest.raises(equality.Unequal):
        generation.check_contender("cpu half", SMALL, 20)
    generation.check_contender("cpu", SMALL, 20)
    assert generation.with_variants(["cpu", "loop"]) == ["cpu", "cpu half", "cpu 64 texts", "loop"]
    exact, half = generation.entry("cpu", SMALL, 5), generation.entry("cpu half", SMALL, 5)
    assert half.bytes == exact.bytes / 2
    assert len(half.run()) == 5


@pytest.mark.skipif(bool(ops.BACKENDS["cpu"].why_unavailable()), reason="needs the C++ op")
def test_many_texts_are_checked_and_all_counted() -> None:
    found = generation.check_contender("cpu 64 texts", SMALL, 9)
    assert found is not None and found.error <= found.allowed and found.steps == 9
    many = generation.entry("cpu 64 texts", SMALL, 50)
    assert many.characters == 5 * 64
    assert [len(text) for text in many.run()] == [5] * 64


def test_greedy_text_may_go_either_way_at_a_tie() -> None:
    model = contenders.our_model(SMALL)
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.zero_()
        model.head.bias[3:5] = 1.0
    prompt = torch.tensor([0])
    assert equality.check_greedy("x", "y", model, prompt, torch.tensor([3, 4, 3])).error == 0
    with pytest.raises(equality.Unequal, match="1 below the largest"):
        equality.check_greedy("x", "y", model, prompt, torch.tensor([3, 4, 5]))


class Keeps(nn.Module):
    """Keeps two activations of 40 bytes for its backward; one twice, and a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(10))

    def loss(self, ids: torch.Tensor, goal: torch.Tensor) -> torch.Tensor:
        first = torch.exp(self.weight * 2)
        second = torch.sigmoid(first.view(2, 5))
        return (first.view(5, 2) * first.view(5, 2)).sum() + (second.view(10) * self.weight).sum()


def test_memory_kept_is_counted_once_and_without_parameters() -> None:
    assert memory_of.kept_bytes(Keeps(), torch.zeros(1), torch.zeros(1)) == 2 * 40


def test_kept_memory_of_ours_is_the_activations_and_little_more() -> None:
    rows, steps = 4, 8
    for unit in ("gru", "lstm"):
        size = Size(unit, 3, 40)
        kept = memory_of.kept_bytes(contenders.build("manual", size), *contenders.batch(rows, steps))
        naive = memory_of.kept_bytes(contenders.build("loop", size), *contenders.batch(rows, steps))
        assert accounting.must_keep(size, rows * steps) <= kept < naive


def test_peak_memory_is_that_of_a_process_of_its_own() -> None:
    size, rows, steps = Size("tanh", 2, 16), 64, 400
    assert memory_of.peak_bytes("loop", size, rows, steps) > accounting.must_keep(size, rows * steps)


def test_both_precisions_are_held_against_the_reference_and_timed(tiny: Plan) -> None:
    bench = sections.Bench(tiny)
    sections.RUN["precision"](bench)
    assert [check.contender for check in bench.checks] == ["manual float32", "manual bfloat16"] * 2
    timed = [name for group in bench.groups for name in group.timed]
    notes = " ".join(bench.notes)
    (peer,) = contenders.named_peers(SMALL)
    for name in ("manual float32", "manual bfloat16", "sgemm 16", "bfloat16 gemm 16", f"{peer} float32"):
        assert name in timed
    assert f"{peer} bfloat16" in timed or f"{peer} bfloat16, 2 x 3 is not measured" in notes


def test_another_precision_is_not_timed_for_the_one_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that leaves its factors as they are computes something else."""
    model, ids = contenders.our_model(SMALL), contenders.batch(3, 4)
    monkeypatch.setattr(equality, "autocast_nats", equality.plain_nats)
    wrong = contenders.our_model(SMALL, "manual")
    with pytest.raises(equality.Unequal, match=r"nothing is timed: .*the median of the first costs is off by"):
        equality.check(str(SMALL), model, {"manual bfloat16": wrong}, *ids, torch.bfloat16)


def test_the_truth_about_rounded_products_is_what_autocast_asks_for() -> None:
    ids = contenders.batch(3, 4)
    for unit in ("tanh", "gru", "lstm"):
        model = contenders.our_model(Size(unit, 2, 5))
        asked, truth = (equality.answers(model, *ids, cost) for cost in (equality.autocast_nats, equality.rounded_nats))
        exact = equality.answers(model, *ids)
        assert asked.keys() == truth.keys()
        for name, tensor in truth.items():
            assert torch.equal(asked[name], tensor), (unit, name)
        assert not torch.equal(exact["the cost"], truth["the cost"])


def test_an_answer_may_be_off_as_far_as_the_worst_of_the_plain_computation() -> None:
    """Not as far as the same one, which may be right by luck; and long sums may be further off than short ones."""
    truth = {name: torch.zeros(1) for name in ("a", "b")}
    plain = {"a": torch.full((1,), 1e-5), "b": torch.zeros(1)}
    for off, terms, right in (
        (1.9e-5, 1, True),
        (2.4e-5, 1, False),
        (2.4e-5, 100 * 256, True),
        (4e-5, 100 * 256, False),
    ):
        what, error, limit = equality.worst_of({"a": truth["a"], "b": torch.full((1,), off)}, truth, plain, terms)
        assert (what, error <= limit) == ("b", right), (off, terms, limit)


def test_rounding_that_many_steps_multiply_is_no_mistake() -> None:
    """Tanh units with feedback multiply what one factor rounded the other way does, in the reference as well."""
    model, backend = contenders.our_model(TANH), "manual" if ops.cpu.why_unavailable() else "cpu"
    ours = contenders.our_model(TANH, backend)
    (found,) = equality.check(str(TANH), model, {backend: ours}, *contenders.batch(16, 17), torch.bfloat16)
    assert found.error <= found.allowed
