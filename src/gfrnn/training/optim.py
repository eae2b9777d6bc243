"""From gradient to update: RMSProp in Graves' form, Adam, schedules, clipping, explosions, averaged weights."""

import dataclasses
import inspect
import math
import statistics
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from gfrnn.errors import UsageError
from gfrnn.training.config import OptimizerConfig

# Kinds of a layer's parameters, as parameters.py names them.
GATES = ("weight_ig", "weight_hg", "bias_g")
RECURRENT = ("weight_hh", "weight_fb")


class Eager(torch.optim.Optimizer):
    """An optimizer that torch.compile is not told to leave alone: for that torch imports all of it, for two seconds."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)


class Adam(Eager, torch.optim.Adam):
    """torch's, which starts two seconds sooner."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))


class GravesRMSProp(Eager):
    """RMSProp with momentum as Graves (2013) writes it, all tensors at once.

        n = decay n + (1 - decay) g^2
        m = decay m + (1 - decay) g
        d = momentum d - learning_rate g / sqrt(n - m^2 + epsilon)
        w = w + d

    torch.optim.RMSprop(centered=True, momentum=...) is something else: it adds epsilon outside the square root (so that
    1e-4 hardly bounds the step), and its learning rate multiplies
    the momentum buffer, so that halving it also halves what is already on its way.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        lr: float,
        decay: float = 0.95,
        momentum: float = 0.9,
        eps: float = 1e-4,
    ) -> None:
        super().__init__(params, {"lr": lr, "decay": decay, "momentum": momentum, "eps": eps})
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p] = {name: torch.zeros_like(p) for name in ("square", "mean", "delta")}

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if not params:
                continue
            grads = [p.grad for p in params]
            square, mean, delta = ([self.state[p][name] for p in params] for name in ("square", "mean", "delta"))
            torch._foreach_mul_(square, group["decay"])
            torch._foreach_addcmul_(square, grads, grads, 1 - group["decay"])
            torch._foreach_lerp_(mean, grads, 1 - group["decay"])
            root = torch._foreach_add(square, group["eps"])
            torch._foreach_addcmul_(root, mean, mean, -1)
            torch._foreach_clamp_min_(root, group["eps"])  # n - m^2 is never negative, but rounding may say so
            torch._foreach_sqrt_(root)
            torch._foreach_mul_(delta, group["momentum"])
            torch._foreach_addcdiv_(delta, grads, root, -group["lr"])
            torch._foreach_add_(params, delta)


def build(config: OptimizerConfig, parameters: Mapping[str, nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer of a recipe. Adam is torch's fused one where it can be: one pass over the weights.

    Its groups carry a `factor` of the learning rate; there is one group unless gates have a rate of their own.
    """
    groups = split(config, parameters)
    if config.optimizer == "rmsprop":
        return GravesRMSProp(groups, config.learning_rate, config.decay, config.momentum, config.epsilon)
    fused = all(p.device.type in ("cpu", "cuda") and p.is_floating_point() for p in parameters.values())
    return Adam(groups, config.learning_rate, (config.momentum, config.decay), config.epsilon, fused=fused)


def split(config: OptimizerConfig, parameters: Mapping[str, nn.Parameter]) -> list[dict[str, Any]]:
    """The parameters by what their learning rate is multiplied by."""
    factor = config.gate_learning_rate
    if factor == 1:
        return [{"params": list(parameters.values()), "factor": 1.0}]
    gates = kinds(parameters, GATES)
    if not gates:
        raise UsageError(f"gate_learning_rate {factor}: the model has no global reset gates that learn")
    others = [p for name, p in parameters.items() if name not in gates]
    return [{"params": others, "factor": 1.0}, {"params": list(gates.values()), "factor": factor}]


def kinds(parameters: Mapping[str, nn.Parameter], wanted: Collection[str]) -> dict[str, nn.Parameter]:
    """Those of the parameters of layers that are of these kinds, whichever layer's they are."""
    return {name: p for name, p in parameters.items() if name.rpartition(".")[2].rpartition("_l")[0] in wanted}


@torch.no_grad()
def shrink(parameters: Mapping[str, nn.Parameter], amount: float) -> None:
    """Decoupled weight decay: every recurrent matrix loses this part of itself."""
    matrices: list[Tensor] = list(kinds(parameters, RECURRENT).values()) if amount else []
    if matrices:
        torch._foreach_mul_(matrices, 1 - amount)


def optimizer_tensors(optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """The optimizer's state as named tensors."""
    return {
        f"{name}.{key}": value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
        for name, p in parameters.items()
        for key, value in optimizer.state[p].items()
    }


def expected_state(config: OptimizerConfig, parameters: Mapping[str, nn.Parameter]) -> dict[str, dict[str, Tensor]]:
    """Of each parameter, by its name: tensors like those the optimizer keeps for it after an update.

    A trial update of a parameter that no other is like tells which of them are as large as the parameter.
    """
    expected = {}
    for name, parameter in parameters.items():
        trial = nn.Parameter(torch.zeros(7, dtype=parameter.dtype, device=parameter.device))
        trial.grad = torch.zeros_like(trial)
        optimizer = build(dataclasses.replace(config, gate_learning_rate=1.0), {name: trial})
        optimizer.step()
        kept = optimizer.state[trial].items()
        expected[name] = {key: parameter if value.shape == trial.shape else value for key, value in kept}
    return expected


def restore_optimizer(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter], tensors: dict[str, Tensor]
) -> None:
    """Take back what `optimizer_tensors` gave."""
    for name, p in parameters.items():
        own = {key[len(name) + 1 :]: value for key, value in tensors.items() if key.rpartition(".")[0] == name}
        # Adam counts its steps on the CPU, except where it is fused.
        moved = {key for key in own if key != "step" or optimizer.defaults.get("fused")}
        optimizer.state[p] = {key: value.to(p.device) if key in moved else value for key, value in own.items()}


def schedule(config: OptimizerConfig, step: int, fraction: float) -> float:
    """What the learning rate is multiplied by at update `step`, when `fraction` of the budget is used up.

    >>> schedule(OptimizerConfig(schedule="linear"), 10, 0.25)
    0.75
    """
    warm = min(1.0, (step + 1) / config.warmup) if config.warmup else 1.0
    fraction = min(max(fraction, 0.0), 1.0)
    if config.schedule == "linear":
        return warm * (1 - fraction)
    if config.schedule == "cosine":
        return warm * 0.5 * (1 + math.cos(math.pi * fraction))
    if config.schedule == "late":
        return warm * min(1.0, (1 - fraction) / config.decay_share)
    return warm


def seed(number: int, device: torch.device) -> None:
    """Of what is random on this device, and on the CPU."""
    if device.type == "cpu":
        torch.default_generator.manual_seed(number)  # torch.manual_seed also queues it for devices that nobody uses
    else:
        torch.manual_seed(number)


class Explosions:
    """Says when the gradient norm explodes: beyond `factor` times the median of the last WINDOW norms.

    The norms of all updates count, so a lasting change of scale is soon normal again; after an explosion the next one
    counts only when COOL_OFF updates have passed, so one burst halves the learning rate once.
    """

    WINDOW, ENOUGH, COOL_OFF = 100, 20, 100

    def __init__(self, factor: float | None) -> None:
        self.factor = factor
        self.norms: deque[float] = deque(maxlen=self.WINDOW)
        self.last: int | None = None

    def exploded(self, norm: float) -> bool:
        """Whether this norm, an update's, is out of all proportion. Remembers it unless it is not finite."""
        if not math.isfinite(norm):
            return True
        known = len(self.norms) >= self.ENOUGH
        out = self.factor is not None and known and norm > self.factor * statistics.median(self.norms)
        self.norms.append(norm)
        return out

    def halves(self, step: int) -> bool:
        """Whether an explosion at `step` halves the learning rate; remembers it if so."""
        if self.factor is None or (self.last is not None and step - self.last < self.COOL_OFF):
            return False
        self.last = step
        return True

    def to_mapping(self) -> dict[str, Any]:
        return {"norms": list(self.norms), "last": self.last}

    def restore(self, saved: dict[str, Any]) -> None:
        self.norms.extend(saved["norms"])
        self.last = saved["last"]


def gradient_norm(parameters: list[nn.Parameter]) -> float:
    """The Euclidean norm of all gradients together."""
    grads = [p.grad for p in parameters if p.grad is not None]
    return float(torch.nn.utils.get_total_norm(grads, foreach=True))


class Averages:
    """An exponential moving average of the weights; the early ones count less (bias-corrected by a growing decay)."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.tensors = {name: p.detach().clone() for name, p in model.named_parameters()} if decay else {}

    def update(self, model: nn.Module, step: int) -> None:
        if self.decay:
            decay = min(self.decay, (1 + step) / (10 + step))
            params = [p.detach() for p in model.parameters()]
            torch._foreach_lerp_(list(self.tensors.values()), params, 1 - decay)

    def of(self, model: nn.Module) -> dict[str, Tensor]:
        """The weights to validate and keep: the averages, or the model's own."""
        return {**model.state_dict(), **self.tensors}

    @contextmanager
    def inside(self, model: nn.Module) -> Iterator[None]:
        """With the averaged weights in the model, where there are any."""
        own = {name: p.detach().clone() for name, p in model.named_parameters()} if self.tensors else {}
        put_weights(model, self.tensors)
        try:
            yield
        finally:
            put_weights(model, own)


@torch.no_grad()
def put_weights(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    for name, p in model.named_parameters():
        if name in tensors:
            p.copy_(tensors[name])


def clip_and_step(optimizer: torch.optim.Optimizer, norm: float, clip: float | None) -> None:
    """One update with the gradient, whose norm is `norm`, scaled down to the norm `clip` if it is longer."""
    scale = norm / clip if clip is not None and norm > clip else None
    if isinstance(optimizer, torch.optim.Adam) and optimizer.defaults["fused"]:
        # The fused kernel divides by this on its way: no pass of its own over the gradients.
        place = optimizer.param_groups[0]["params"][0].device
        optimizer.grad_scale = None if scale is None else torch.tensor(scale, device=place)  # type: ignore[attr-defined]
    elif scale is not None:
        grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        torch._foreach_mul_(grads, 1 / scale)
    optimizer.step()
