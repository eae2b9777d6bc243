"""A layer's parameters: their names, their shapes, and how they start.

A start is drawn whole, as a plain tensor, and then put where its parameter is: a parameter may be in pieces (FSDP2's
are), and then what is written into a view of it is lost.
"""

from typing import Any

import torch
from torch import Tensor, nn

from gfrnn.equations import UNITS, WIRINGS, Spec, Weights

# what the fields of equations.Weights are called in the state_dict, in their order
NAMES = ("weight_ih", "weight_hh", "weight_fb", "bias", "weight_ig", "weight_hg", "bias_g", "gain")
FIELDS = dict(zip(NAMES, Weights._fields, strict=True))
SCALE = 0.08  # of the start of what is neither recurrent nor read from a symbol
QUIET = 0.1


def shapes(spec: Spec, bias: bool, j: int) -> dict[str, tuple[int, ...]]:
    """Names (without `_l{j}`) and shapes of layer j's parameters, in the order of the state_dict."""
    G, H, L = len(UNITS[spec.unit].gates), spec.hidden_size, spec.num_layers
    wiring = WIRINGS[spec.wiring]
    I, n = spec.input_size if j == 0 else H + spec.input_size * spec.input_skip, len(sources(spec, j))
    shapes: dict[str, tuple[int, ...]] = {"weight_ih": (G * H, I)}
    if spec.apart:
        shapes |= {"weight_hh": ((G - 1) * H, H), "weight_fb": (H, n * H)}
    else:
        shapes["weight_hh"] = (G * H, n * H)
    if bias:
        shapes["bias"] = (G * H,)
    if wiring.gates is not None:
        shapes |= {"weight_ig": (n, I), "weight_hg": (n, L * H)}
        if bias:
            shapes["bias_g"] = (n,)
    if spec.normalise:
        shapes["gain"] = (G * H,)
    return shapes


def sources(spec: Spec, j: int) -> range:
    """The layers that layer j hears."""
    return WIRINGS[spec.wiring].hears(j, spec.num_layers)


def as_weights(layer: Any, j: int) -> Weights:
    """Layer j's parameters, as equations.py names them."""
    return Weights(**{FIELDS[name]: getattr(layer, f"{name}_l{j}") for name in shapes(layer.spec, layer.bias, j)})


def put(parameter: Tensor, value: Tensor) -> None:
    """Make the parameter hold the value; in several processes each its own piece of the first one's."""
    mesh, placements = (getattr(parameter, name, None) for name in ("device_mesh", "placements"))  # of a DTensor
    if mesh is not None:
        from torch.distributed.tensor import distribute_tensor

        value = distribute_tensor(value.to(parameter.dtype), mesh, placements)
    with torch.no_grad():
        parameter.copy_(value)


def uniform(parameter: Tensor) -> Tensor:
    """Numbers of -SCALE to SCALE in the parameter's shape."""
    return nn.init.uniform_(empty(parameter), -SCALE, SCALE)


def empty(parameter: Tensor) -> Tensor:
    """A plain tensor for its value. Never of 16 bits: there is no orthogonal basis in so few; `put` rounds."""
    dtype = torch.promote_types(parameter.dtype, torch.float32)
    return torch.empty(parameter.shape, dtype=dtype, device=parameter.device)


def block_factors(start: str, sources: int) -> tuple[float, float]:
    """What the orthogonal blocks of a matrix over so many sources are multiplied by: the own layer's, and the others'.

    >>> [block_factors(start, 4) for start in ("paper", "scaled", "quiet", "stack")]
    [(1.0, 1.0), (0.5, 0.5), (1.0, 0.1), (1.0, 0.0)]
    """
    even = sources**-0.5 if start == "scaled" else 1.0
    return even, {"quiet": QUIET, "stack": 0.0}.get(start, even)


def start(name: str, parameter: Tensor, layer: Any) -> Tensor:
    """A new value for the layer's parameter called `name`; `GatedFeedback.reset_parameters` has the table."""
    kind, place = name.rsplit("_l", 1)
    value, spec, j = empty(parameter), layer.spec, int(place)
    H = spec.hidden_size
    if kind in ("weight_hh", "weight_fb"):
        own, other = block_factors(layer.start, value.shape[1] // H)
        hears = sources(spec, j) if value.shape[1] > H else (j,)  # unit-wise gates may see their own layer only
        for rows in value.split(H):
            for i, block in zip(hears, rows.split(H, dim=1), strict=True):
                nn.init.orthogonal_(block)
                block *= own if i == j else other
    elif kind == "weight_ih" and layer.input_std > 0 and (j == 0 or spec.input_skip):
        nn.init.normal_(value[:, : spec.input_size], std=layer.input_std)
        nn.init.uniform_(value[:, spec.input_size :], -SCALE, SCALE)
    elif kind.startswith("weight"):
        return uniform(parameter)
    elif kind == "gain":
        nn.init.ones_(value)
    elif kind == "bias_g":
        for i, bias in zip(sources(spec, j), value, strict=True):
            nn.init.constant_(bias, layer.gate_bias_own if i == j else layer.gate_bias_other)
    else:
        nn.init.zeros_(value)
        if layer.forget_bias:
            forget = UNITS[spec.unit].place("f")
            value[forget * H : (forget + 1) * H] = layer.forget_bias
    return value
