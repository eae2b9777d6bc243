"""What a backend implements, declared as data; what a call asks for; and the sentences where the two differ.

This is the only place that compares them, so a backend never meets a call that it did not declare.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor
from torch.autograd import forward_ad

from gfrnn.equations import UNITS, WIRINGS, Spec
from gfrnn.ops.call import Call


class Transform(Enum):
    """What torch may do with a call besides computing it, as a sentence names it."""

    FUNC = "torch.func (vmap, grad, vjp, jacrev, jvp and their kin)"
    FORWARD_MODE = "forward-mode differentiation"
    SECOND_DERIVATIVES = "a derivative of a derivative (create_graph=True)"
    COMPILE = "torch.compile and torch.export"
    ONNX = "torch.onnx.export"
    TRACE = "torch.jit.trace (and torch.onnx.export with dynamo=False)"


@dataclass(frozen=True)
class Implements:
    """What a backend can do; None stands for everything there is."""

    units: Collection[str] | None = None
    wirings: Collection[str] | None = None
    dtypes: Collection[torch.dtype] | None = None  # all tensors of a call have the same
    devices: Collection[str] | None = None
    transforms: Collection[Transform] = tuple(Transform)
    rounds: Collection[torch.dtype] | None = None  # dtypes in which it has bfloat16 products (products.py)

    def why_not_kind(self, spec: Spec) -> list[str]:
        """Sentences why it cannot compute such a network at all; empty: it can."""
        reasons = []
        if self.units is not None and spec.unit not in self.units:
            reasons.append(f"it has no unit {spec.unit!r}, only {listed(self.units)}")
        if self.wirings is not None and spec.wiring not in self.wirings:
            reasons.append(f"it has no wiring {spec.wiring!r}, only {listed(self.wirings)}")
        return reasons

    def why_not(self, call: Call) -> list[str]:
        """Sentences why it cannot run this call; empty: it can."""
        reasons, tensors = self.why_not_kind(call.spec), call.tensors()
        if self.devices is not None:
            devices = {t.device.type for t in tensors} | {call.x.device.type}
            if not devices <= set(self.devices):
                reasons.append(f"the tensors are on {listed(devices)}, it runs on {listed(self.devices)}")
        if self.dtypes is not None:
            dtypes = {t.dtype for t in tensors}
            if len(dtypes) != 1 or not dtypes <= set(self.dtypes):
                reasons.append(f"it computes in one of {listed(self.dtypes)}, got {listed(dtypes)}")
        if call.products is not None and self.rounds is not None:
            dtypes = {t.dtype for t in tensors}
            if not dtypes <= set(self.rounds):
                reasons.append(f"its bfloat16 products are for {listed(self.rounds)}, got {listed(dtypes)}")
        asked = [transform.value for transform in transforms_of(call) if transform not in self.transforms]
        return reasons + [f'{name} needs backend="reference" (or "auto", which takes what it needs)' for name in asked]


def listed(values: Collection[object]) -> str:
    return ", ".join(sorted(map(str, values)))


def check_spec(spec: Spec) -> None:
    """Whether there are such a unit and such a wiring at all."""
    for kind, name, registered in (("unit", spec.unit, UNITS), ("wiring", spec.wiring, WIRINGS)):
        if name not in registered:
            raise ValueError(f"{kind} must be one of {', '.join(map(repr, registered))}, got {name!r}")


def check_products(products: torch.dtype | None) -> None:
    if products not in (None, torch.bfloat16):
        raise ValueError(f"products must be torch.bfloat16 or None, got {products!r}")


def transforms_of(call: Call) -> list[Transform]:
    """What is being done with the call, as far as it shows before the call is computed."""
    if torch.compiler.is_compiling():
        onnx = torch.compiler.is_exporting() and torch.onnx.is_in_onnx_export()
        return [Transform.COMPILE, Transform.ONNX] if onnx else [Transform.COMPILE]
    found = [Transform.TRACE] if torch.jit.is_tracing() else []
    tensors = call.tensors()
    if not all(owns_memory(t) for t in (call.x, *tensors)):
        found.append(Transform.FUNC)
    elif any(forward_ad.unpack_dual(t).tangent is not None for t in tensors):
        found.append(Transform.FORWARD_MODE)
    return found


def owns_memory(tensor: Tensor) -> bool:
    """Not so for what torch.func and vmap hand to a function: tensors around tensors, without numbers of their own."""
    try:
        tensor.untyped_storage()
    except NotImplementedError:
        return False
    return True
