"""Optimizers against their formulas, one number at a time."""

from __future__ import annotations

import math
import sys

import forked
import pytest
import torch
from torch import nn

from gfrnn.errors import UsageError
from gfrnn.training import optim
from gfrnn.training.config import OptimizerConfig

GRADIENTS = [[0.5, -2.0, 1e-4], [0.25, 3.0, -1e-4], [-0.125, 0.0, 2e-4], [1.0, -1.0, 0.0]]


def follow(optimizer: torch.optim.Optimizer, p: nn.Parameter, rates: list[float], clip: float | None = None) -> None:
    for gradient, rate in zip(GRADIENTS, rates, strict=True):
        p.grad = torch.tensor(gradient, dtype=p.dtype)
        optimizer.param_groups[0]["lr"] = rate
        optim.clip_and_step(optimizer, float(p.grad.norm()), clip)


def test_rmsprop_is_graves_formula() -> None:
    p = nn.Parameter(torch.tensor([1.0, -1.0, 0.5], dtype=torch.float64))
    rates = [0.01, 0.01, 0.005, 0.005]
    expected = []
    for i, w in enumerate([1.0, -1.0, 0.5]):
        n = m = d = 0.0
        for gradient, rate in zip(GRADIENTS, rates, strict=True):
            g = gradient[i]
            n = 0.95 * n + 0.05 * g * g
            m = 0.95 * m + 0.05 * g
            d = 0.9 * d - rate * g / math.sqrt(n - m * m + 1e-4)
            w += d
        expected.append(w)
    config = OptimizerConfig(learning_rate=0.01)
    follow(optim.build(config, {"p": p}), p, rates)
    torch.testing.assert_close(p.detach(), torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=0)


def test_rmsprop_survives_gradients_that_hardly_change() -> None:
    """Rounding makes n - m^2 negative, by more than epsilon."""
    p, noise = nn.Parameter(torch.zeros(50)), torch.Generator().manual_seed(0)
    optimizer = optim.build(OptimizerConfig(), {"p": p})
    for _ in range(600):
        p.grad = 30 + 1e-3 * torch.randn(50, generator=noise)
        optimizer.step()
    assert p.isfinite().all()


def test_adam_is_adam_and_clips() -> None:
    p = nn.Parameter(torch.tensor([1.0, -1.0, 0.5], dtype=torch.float64))
    rates, clip = [0.01, 0.01, 0.005, 0.005], 1.0
    expected = []
    for i, w in enumerate([1.0, -1.0, 0.5]):
        m = v = 0.0
        for t, (gradient, rate) in enumerate(zip(GRADIENTS, rates, strict=True), start=1):
            g = gradient[i] * min(1.0, clip / math.sqrt(sum(x * x for x in gradient)))
            m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
            w -= rate * (m / (1 - 0.9**t)) / (math.sqrt(v / (1 - 0.99**t)) + 1e-8)
        expected.append(w)
    config = OptimizerConfig(optimizer="adam", decay=0.99, epsilon=1e-8)
    follow(optim.build(config, {"p": p}), p, rates, clip)
    torch.testing.assert_close(p.detach(), torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=0)


def test_rmsprop_clips() -> None:
    twins = [nn.Parameter(torch.ones(3)) for _ in range(2)]
    optimizers = [optim.build(OptimizerConfig(), {"p": p}) for p in twins]
    twins[0].grad, twins[1].grad = torch.tensor([3.0, 0.0, 4.0]), torch.tensor([0.6, 0.0, 0.8])
    for optimizer, norm in zip(optimizers, (5.0, 1.0), strict=True):
        optim.clip_and_step(optimizer, norm, 1.0)
    torch.testing.assert_close(*twins)


@pytest.mark.parametrize("name", ["rmsprop", "adam"])
def test_the_state_comes_back(name: str) -> None:
    config = OptimizerConfig(optimizer=name)  # type: ignore[arg-type]
    torch.manual_seed(1)
    models = [nn.Linear(3, 2) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    named = [dict(model.named_parameters()) for model in models]
    optimizers = [optim.build(config, parameters) for parameters in named]

    def step(i: int) -> None:
        models[i](torch.ones(1, 3)).square().sum().backward()
        optim.clip_and_step(optimizers[i], 1.0, None)
        optimizers[i].zero_grad()

    step(0)
    step(0)
    models[1].load_state_dict(models[0].state_dict())
    saved = {key: value.clone() for key, value in optim.optimizer_tensors(optimizers[0], named[0]).items()}
    optim.restore_optimizer(optimizers[1], named[1], saved)
    step(0)
    step(1)
    assert torch.equal(models[0].weight, models[1].weight)


def test_schedules() -> None:
    def at(kind: str, fraction: float, step: int = 1000, warmup: int = 0) -> float:
        return optim.schedule(OptimizerConfig(schedule=kind, warmup=warmup), step, fraction)  # type: ignore[arg-type]

    assert [at("constant", f) for f in (0, 0.5, 1)] == [1, 1, 1]
    assert [at("linear", f) for f in (0, 0.25, 1, 1.5)] == [1, 0.75, 0, 0]
    assert [round(at("cosine", f), 6) for f in (0, 0.5, 1)] == [1, 0.5, 0]
    assert [at("late", f) for f in (0, 0.7, 0.85, 1, 2)] == pytest.approx([1, 1, 0.5, 0, 0])
    assert optim.schedule(OptimizerConfig(schedule="late", decay_share=1.0), 9, 0.25) == 0.75
    assert [at("constant", 0, step, warmup=4) for step in (0, 1, 3, 9)] == [0.25, 0.5, 1, 1]


def test_an_explosion_is_out_of_proportion_to_the_running_median() -> None:
    watch = optim.Explosions(10.0)
    assert not watch.exploded(1e9)  # nothing to compare with yet
    assert not any(watch.exploded(1.0) for _ in range(30))
    assert not watch.exploded(9.0)
    assert watch.exploded(11.0)
    assert watch.exploded(math.nan)
    assert watch.exploded(math.inf)
    assert [watch.halves(step) for step in (5, 6, 104, 105)] == [True, False, False, True]
    assert not any([watch.exploded(11.0) for _ in range(200)][100:])  # a lasting change is normal in the end
    again = optim.Explosions(10.0)
    again.restore(watch.to_mapping())
    assert again.to_mapping() == watch.to_mapping()


def test_without_a_factor_only_what_is_not_finite_explodes() -> None:
    watch = optim.Explosions(None)
    assert not any(watch.exploded(norm) for norm in [1.0] * 30 + [1e30])
    assert watch.exploded(math.inf)
    assert not watch.halves(1)


def test_averages_follow_slowly() -> None:
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    averages = optim.Averages(model, 0.5)
    nn.init.ones_(model.weight)
    averages.update(model, 1000)
    assert averages.of(model)["weight"].item() == 0.5
    assert model.weight.item() == 1
    off = optim.Averages(model, 0.0)
    off.update(model, 0)
    assert off.of(model)["weight"].item() == 1


def test_the_gradient_norm_is_over_all_parameters() -> None:
    p, q, unused = (nn.Parameter(torch.zeros(1)) for _ in range(3))
    p.grad, q.grad = torch.tensor([3.0]), torch.tensor([-4.0])
    assert optim.gradient_norm([p, q, unused]) == 5


@pytest.mark.parametrize(
    "options",
    [
        {"learning_rate": -1.0},
        {"learning_rate": math.nan},
        {"learning_rate": math.inf},
        {"learning_rate": "fast"},
        {"decay": 1.0},
        {"epsilon": 0.0},
        {"clip": 0.0},
        {"optimizer": "sgd"},
        {"warmup": 1.5},
        {"ema": 1.0},
    ],
)
def test_hyper_parameters_that_make_no_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        OptimizerConfig(**options)  # type: ignore[arg-type]


def test_training_never_imports_the_compiler() -> None:
    """Two seconds of every start; the server that processes are forked from has trained with both optimizers."""
    script = "import sys; print('gfrnn.training.loop' in sys.modules, 'torch._dynamo' in sys.modules)"
    assert forked.run([sys.executable, "-c", script], stdout=forked.PIPE, text=True).stdout == "True False\n"
