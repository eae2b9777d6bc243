"""The targets, as data: what is compared with what inside one interleaved group, and where the bar is."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from gfrnn.bench.clock import Group, Spread
from gfrnn.bench.machine import CACHE_READ, peak_name
from gfrnn.bench.plan import FULL, GRU, LSTM, TANH
from gfrnn.bench.updates import BARE, WHOLE


@dataclass(frozen=True)
class Target:
    """`ours` over `theirs` by their rates of characters, flops or bytes; or the exponent of the series `ours`."""

    what: str
    section: str
    group: str
    ours: str
    theirs: str
    by: Literal["characters", "flops", "bytes", "exponent"]
    bound: float

    @property
    def words(self) -> str:
        sign = "<=" if self.by == "exponent" else ">="
        return f"{sign} {show(self.bound, self.by)}"

    def measured(self, group: Group) -> Spread | None:
        """None when the group has not both contenders."""
        if self.by == "exponent":
            return group.exponents().get(self.ours)
        if self.ours not in group.timed or self.theirs not in group.timed:
            return None
        return group.ratio(self.ours, self.theirs, self.by)

    def met(self, value: float) -> bool:
        return value <= self.bound if self.by == "exponent" else value >= self.bound


PEAK = peak_name(FULL.square)
SMALL, LARGE = (f"{rows} x {steps}" for rows, steps in FULL.minibatches)
TARGETS = (
    Target(f"{LSTM} training step, times the loop", "train", str(LSTM), "cpu", "loop", "characters", 4.5),
    Target(f"{GRU} training step, times the loop", "train", str(GRU), "cpu", "loop", "characters", 4.0),
    Target(f"{TANH} training step, times the loop", "train", str(TANH), "cpu", "loop", "characters", 4.0),
    Target(f"{LSTM} training step, times nn.LSTM 3x228", "train", str(LSTM), "cpu", "nn.LSTM 3x228", "characters", 1.6),
    Target(f"{LSTM} training step, share of the {PEAK} rate", "train", str(LSTM), "cpu", PEAK, "flops", 0.80),
    Target(f"{LSTM} generation, times the loop", "generate", str(LSTM), "cpu", "loop", "characters", 10.0),
    Target(f"{LSTM} generation, share of read bandwidth", "generate", str(LSTM), "cpu", CACHE_READ, "bytes", 0.60),
    Target(
        f"{LSTM} generation, half-precision weights, times the loop",
        "generate",
        str(LSTM),
        "cpu half",
        "loop",
        "characters",
        16.0,
    ),
    Target(f"{LSTM} generation, 64 texts over one", "generate", str(LSTM), "cpu 64 texts", "cpu", "characters", 8.0),
    Target(f"{LSTM} training, {SMALL} over {LARGE}", "minibatch", str(LSTM), SMALL, LARGE, "characters", 0.85),
    *(
        Target(
            f"training loop over its bare step, {shape}", "updates", f"{LSTM}, {shape}", WHOLE, BARE, "characters", 0.85
        )
        for shape in (f"{rows} x {steps}" for rows, steps in FULL.updated)
    ),
    # "Linear" is read as: the exponent stays below 1.1.
    Target("training step, exponent in T", "scaling", "steps", "cpu", "", "exponent", 1.1),
    Target("training step, exponent in B, from 8", "scaling", "rows", "cpu", "", "exponent", 1.1),
    Target("training step, exponent in the parameters", "scaling", "parameters", "cpu", "", "exponent", 1.1),
)


@dataclass(frozen=True)
class Verdict:
    target: Target
    measured: Spread | None
    verdict: str  # "met", "missed", "not run" or "not measured"

    def to_mapping(self) -> dict[str, Any]:
        return {**asdict(self), "bound": self.target.words}


def judge(groups: Sequence[Group]) -> list[Verdict]:
    """Every target against what was measured."""
    found = {(group.section, group.name): group for group in groups}
    verdicts = []
    for target in TARGETS:
        group = found.get((target.section, target.group))
        measured = None if group is None else target.measured(group)
        if measured is None:
            verdicts.append(Verdict(target, None, "not run" if group is None else "not measured"))
        else:
            verdicts.append(Verdict(target, measured, "met" if target.met(measured.median) else "missed"))
    return verdicts


def show(value: float, by: str) -> str:
    """
    >>> show(0.8, "flops"), show(4.5, "characters"), show(1.1, "exponent")
    ('80 %', '4.50 x', '1.10')
    """
    if by in ("flops", "bytes"):
        return f"{100 * value:.0f} %"
    return f"{value:.2f}" if by == "exponent" else f"{value:.2f} x"
