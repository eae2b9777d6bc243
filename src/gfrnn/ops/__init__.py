"""One door to speed: `scan` runs all timesteps on the backend asked for.

A backend is a module with `IMPLEMENTS` (units, wirings, dtypes, devices and transforms, as data), `scan(call)` and
`why_unavailable()` (sentences why it cannot run at all here). `why_not(call)` follows from them, in one place for all.
An explicit backend that cannot run a call raises with those sentences; "auto" takes the first that can, in the order of
AUTO. There is no silent switch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor

from gfrnn.equations import Spec, State, Weights
from gfrnn.ops import cpu, manual, reference
from gfrnn.ops.call import Call, Scanned
from gfrnn.ops.declared import Implements, check_products, check_spec


@dataclass(frozen=True)
class Backend:
    implements: Implements
    scan: Callable[[Call], Scanned]
    why_unavailable: Callable[[], list[str]]

    def why_not(self, call: Call) -> list[str]:
        """Sentences why it cannot run this call; empty: it can."""
        return self.why_unavailable() or self.implements.why_not(call)


def backend(module: ModuleType) -> Backend:
    return Backend(module.IMPLEMENTS, module.scan, module.why_unavailable)


BACKENDS = {"cpu": backend(cpu), "manual": backend(manual), "reference": backend(reference)}
AUTO = tuple(BACKENDS)
CHOICES = ("auto", *BACKENDS)


def check_backend(name: str) -> str:
    """`name`, if there is such a backend."""
    if name not in CHOICES:
        raise ValueError(f"backend must be one of {', '.join(map(repr, CHOICES))}, got {name!r}")
    return name


def choose(call: Call, backend: str = "auto") -> str:
    """The backend that will run `call`."""
    check_spec(call.spec)
    check_products(call.products)
    if check_backend(backend) == "auto":
        return next(name for name in AUTO if not BACKENDS[name].why_not(call))
    reasons = BACKENDS[backend].why_not(call)
    if reasons:
        raise RuntimeError(f"backend {backend!r} cannot run this call: {'; '.join(reasons)}")
    return backend


def scan(
    x: Tensor,
    state: State,
    weights: Sequence[Weights],
    spec: Spec,
    backend: str = "auto",
    *,
    lengths: Tensor | None = None,
    dropout_masks: Tensor | None = None,
    return_gates: bool = False,
    products: torch.dtype | None = None,
) -> Scanned:
    """Every timestep of x (T, B, I) from `state`: all layers' h (T, B, L*H), the last state, and the gates if asked."""
    call = Call(x, state, weights, spec, lengths, dropout_masks, return_gates, products)
    return BACKENDS[choose(call, backend)].scan(call)


def native_facts() -> dict[str, str]:
    """What the compiled op says of itself."""
    chosen = {"auto_precision": "bfloat16" if cpu.multiplies_bfloat16() else "float32"}
    return chosen if cpu.why_unavailable() else {"op_instruction_set": cpu.isa(), **chosen}
