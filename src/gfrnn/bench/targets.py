"""The targets, as data: what is compared with what inside one interleaved group, and where the bar is."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from gfrnn.bench import precision, updates
from gfrnn.bench.clock import Group, Spread
from gfrnn.bench.contenders import peer_name
from gfrnn.bench.machine import CACHE_READ, peak_name
from gfrnn.bench.plan import FULL, GRU, LSTM, NAMED_PEER, TANH, Size, small_name
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
    for_bfloat16: bool = False  # it is about CPUs that have an instruction for such products

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
SMALL, USUAL = (f"{rows} x {steps}" for rows, steps in FULL.minibatches)
PEER = peer_name(LSTM.unit, LSTM.num_layers, NAMED_PEER[LSTM.unit])
SMALL_ROWS = f"{FULL.small[0][0]} x {FULL.small[0][1]}"
FLOAT32, BFLOAT16 = precision.PRECISIONS


def whole_update(rows: int, steps: int, products: str) -> Target:
    what, name = f"training loop over its bare step, {rows} x {steps}", updates.group_name(LSTM, rows, steps, products)
    what += f", {products}" * (products != FLOAT32)
    return Target(what, "updates", name, WHOLE, BARE, "characters", 0.85, products != FLOAT32)


def rounded(size: Size, rows: int, steps: int, threads: int, theirs: str, bound: float) -> Target:
    """Ours in bfloat16 against somebody."""
    name = precision.group_name(size, rows, steps, threads)
    ours = f"cpu {BFLOAT16}"
    return Target(f"{name}, bfloat16 over {theirs}", "precision", name, ours, theirs, "characters", bound, True)


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
    Target(f"{LSTM} training, {SMALL} over {USUAL}", "minibatch", str(LSTM), SMALL, USUAL, "characters", 0.85),
    *(whole_update(rows, steps, products) for products in precision.PRECISIONS for rows, steps in FULL.updated),
    # "Linear" is read as: the exponent stays below 1.1.
    Target("training step, exponent in T", "scaling", "steps", "cpu", "", "exponent", 1.1),
    Target("training step, exponent in B, from 8", "scaling", "rows", "cpu", "", "exponent", 1.1),
    Target("training step, exponent in the parameters", "scaling", "parameters", "cpu", "", "exponent", 1.1),
    Target(f"{LSTM} without a compiler, times the loop", "train", str(LSTM), "manual", "loop", "characters", 1.3),
    Target(
        f"{LSTM} without a compiler, {SMALL_ROWS}, times the loop",
        *("train", small_name(LSTM), "manual", "loop", "characters"),
        2.0,
    ),
    *(rounded(LSTM, rows, steps, 1, f"cpu {FLOAT32}", 1.6) for rows, steps in FULL.precise),
    *(
        rounded(LSTM, rows, steps, threads, f"{PEER} {products}", bound)
        for products, bound in ((BFLOAT16, 1.3), (FLOAT32, 2.4))
        for threads in (1, 2)
        for rows, steps in FULL.precise
    ),
    *(rounded(size, rows, steps, 1, f"cpu {FLOAT32}", 1.5) for size, rows, steps in FULL.beyond_caches),
)


@dataclass(frozen=True)
class Verdict:
    target: Target
    measured: Spread | None
    verdict: str  # "met", "missed", "not run", "not measured" or "another CPU"

    def to_mapping(self) -> dict[str, Any]:
        return {**asdict(self), "bound": self.target.words}


def judge(groups: Sequence[Group], multiplies_bfloat16: bool) -> list[Verdict]:
    """Every target against what was measured; those about another kind of CPU are neither met nor missed."""
    found = {(group.section, group.name): group for group in groups}
    verdicts = []
    for target in TARGETS:
        group = found.get((target.section, target.group))
        measured = None if group is None else target.measured(group)
        if measured is None:
            verdicts.append(Verdict(target, None, "not run" if group is None else "not measured"))
        elif target.for_bfloat16 and not multiplies_bfloat16:
            verdicts.append(Verdict(target, measured, "another CPU"))
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
