"""What the layers refuse, in the words and with the exception types of torch.nn.LSTM where it has them."""

import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from gfrnn.equations import UNITS, WIRINGS, State
from gfrnn.ops.declared import owns_memory


def sizes(**values: Any) -> None:
    for name, value in values.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{name} should be of type int, got: {type(value).__name__}")
        if value <= 0:
            raise ValueError(f"{name} must be greater than zero, got {value}")


def flags(**values: Any) -> None:
    for name, value in values.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} should be of type bool, got: {type(value).__name__}")


def choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def unsupported(bidirectional: Any, proj_size: Any, unit: str) -> None:
    if bidirectional:
        raise ValueError(
            "bidirectional=True: a gated-feedback network feeds its upper layers back through time, so it has no "
            "backward twin to concatenate; run a second layer over the reversed sequence instead"
        )
    if proj_size and not UNITS[unit].has_cell:
        raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
    if proj_size:
        raise ValueError(
            f"proj_size={proj_size}: every layer feeds every other, so all states have hidden_size units; "
            "there is no projected state"
        )


def nonlinearity(value: Any) -> None:
    if value == "relu":
        raise ValueError("nonlinearity='relu': the paper's simple unit is tanh, and there is no other here")
    if value != "tanh":
        raise ValueError(f"Unknown nonlinearity '{value}'. There is only 'tanh'.")


def dropout(value: Any, num_layers: int, frames: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(
            f"dropout should be a number in range [0, 1] representing the probability of an element being zeroed, "
            f"got {value!r}"
        )
    if value > 0 and num_layers == 1:
        warnings.warn(
            "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects "
            f"num_layers greater than 1, but got dropout={value} and num_layers={num_layers}",
            stacklevel=frames,
        )


def forget_bias(value: Any, unit: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < float("inf"):
        raise ValueError(f"forget_bias must be a finite number, got {value!r}")
    if value and "f" not in UNITS[unit].gates:
        raise ValueError(f"forget_bias={value}: only an LSTM has a forget gate")


def input_std(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise ValueError(f"input_std must be a finite number, 0 or more, got {value!r}")


def start(wiring: str, num_layers: int, bias: bool, start: str, **gate_biases: Any) -> None:
    """Whether there is what these options of the start are about."""
    for name, value in gate_biases.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < float("inf"):
            raise ValueError(f"{name} must be a finite number, got {value!r}")
        if value and (WIRINGS[wiring].gates is None or not bias):
            why = "with bias=False the gates have none" if not bias else f"wiring '{wiring}' has no learnt gates"
            raise ValueError(f"{name}={value}: {why}")
    if start != "paper" and all(len(WIRINGS[wiring].hears(j, num_layers + 1)) == 1 for j in range(num_layers + 1)):
        raise ValueError(f"start='{start}': with wiring '{wiring}' no layer hears another's past")


def input(layer: Any, x: Any) -> None:
    name = type(layer).__name__
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}: input must be a Tensor or a PackedSequence, got: {type(x).__name__}")
    if not is_index(x):
        if x.dim() not in (2, 3):
            raise ValueError(f"{name}: Expected input to be 2D or 3D, got {x.dim()}D instead")
        dense(layer, x)
        batched = x.dim() == 3
    else:
        if x.dim() not in (1, 2):
            raise ValueError(f"{name}: Expected input of indices to be 1D or 2D, got {x.dim()}D instead")
        batched = x.dim() == 2
    device(layer, x, "input")
    if x.shape[1 if layer.batch_first and batched else 0] == 0:
        raise RuntimeError("Expected sequence length to be larger than 0 in RNN")


def step_input(layer: Any, x_t: Any) -> None:
    name = type(layer).__name__
    if not isinstance(x_t, Tensor):
        raise TypeError(f"{name}.step: x_t must be a Tensor, got: {type(x_t).__name__}")
    ranks = (0, 1) if is_index(x_t) else (1, 2)
    if x_t.dim() not in ranks:
        raise ValueError(f"{name}.step: Expected x_t to be {ranks[0]}D or {ranks[1]}D, got {x_t.dim()}D instead")
    if not is_index(x_t):
        dense(layer, x_t)
    device(layer, x_t, "x_t")
    indices(layer, x_t)


def packed_data(layer: Any, data: Tensor) -> None:
    expected = 1 if is_index(data) else 2
    if data.dim() != expected:
        raise RuntimeError(f"input must have {expected} dimensions, got {data.dim()}")
    if not is_index(data):
        dense(layer, data)
    device(layer, data, "input")


def is_index(x: Tensor) -> bool:
    """Whether x holds indices. Bool and complex tensors are neither indices nor input of the weights' dtype."""
    return not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool)


def autocasting(x: Tensor) -> bool:
    """Whether autocast is on where x is (the meta device has none)."""
    return torch.amp.is_autocast_available(x.device.type) and torch.is_autocast_enabled(x.device.type)


def products(weight: Tensor) -> torch.dtype | None:
    """The products that autocast asks for where `weight` is: bfloat16, for float32 weights on the CPU.

    Its other requests leave the weights' precision as it is: a recurrence multiplies its rounding errors.
    """
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or not autocasting(weight):
        return None
    return torch.bfloat16 if torch.get_autocast_dtype("cpu") == torch.bfloat16 else None


def no_autocast(x: Tensor) -> AbstractContextManager[Any]:
    return torch.autocast(x.device.type, enabled=False) if autocasting(x) else nullcontext()


def dense(layer: Any, x: Tensor) -> None:
    weight = layer.weight_ih_l0
    if x.dtype != weight.dtype and not (x.is_floating_point() and autocasting(x)):
        raise ValueError(
            f"RNN input dtype ({x.dtype}) does not match weight dtype ({weight.dtype}). "
            f"Convert input: input.to({weight.dtype}), or convert model: model.to({x.dtype})"
        )
    if x.shape[-1] != layer.input_size:
        raise RuntimeError(
            f"input.size(-1) must be equal to input_size. Expected {layer.input_size}, got {x.shape[-1]}"
        )


def device(layer: Any, x: Tensor, name: str) -> None:
    expected = layer.weight_ih_l0.device
    if x.device != expected:
        raise RuntimeError(
            f"Input and parameter tensors are not at the same device, found {name} at {x.device} "
            f"and parameters at {expected}"
        )


def readable(x: Tensor) -> bool:
    """Whether a check may look at the numbers: not while tracing, and not on a device where looking means waiting."""
    if x.device.type != "cpu" or x.numel() == 0 or torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    return owns_memory(x)  # not so under vmap


def indices(layer: Any, x: Tensor, lengths: Tensor | None = None) -> None:
    if not is_index(x) or not readable(x):
        return
    if lengths is not None:
        running = torch.arange(x.shape[0], device=x.device)[:, None] < lengths
        x = x[running]
    low, high = (int(v) for v in torch.aminmax(x.long()))
    if low < 0 or high >= layer.input_size:
        wrong = low if low < 0 else high
        raise IndexError(f"input: index {wrong} is out of range for input_size {layer.input_size}")


def state(layer: Any, hx: Any, batch: int, batched: bool) -> State:
    """hx as a State of 3-D tensors."""
    if layer.has_cell and not (isinstance(hx, tuple | list) and len(hx) == 2):
        raise RuntimeError(f"hx must be a pair (h_0, c_0) for {type(layer).__name__}, got {type(hx).__name__}")
    parts = tuple(hx) if layer.has_cell else (hx,)
    if not all(isinstance(part, Tensor) for part in parts):
        raise TypeError(f"hx must hold tensors, got {', '.join(type(part).__name__ for part in parts)}")
    weight = layer.weight_ih_l0
    checked = []
    for k, part in enumerate(parts):
        name = f"hidden[{k}]" if layer.has_cell else "hidden"
        rank = 3 if batched else 2
        if part.dim() != rank:
            kind = "batched" if batched else "unbatched"
            raise RuntimeError(f"For {kind} input, hx should be {rank}-D but got a {part.dim()}-D tensor ({name})")
        if not batched:
            part = part.unsqueeze(1)
        expected = (layer.num_layers, batch, layer.hidden_size)
        if tuple(part.shape) != expected:
            raise RuntimeError(f"hx: Expected {name} size {expected}, got {list(part.shape)}")
        if part.dtype != weight.dtype and not autocasting(part):
            raise RuntimeError(f"hx: dtype of {name} ({part.dtype}) does not match weight dtype ({weight.dtype})")
        device(layer, part, f"hx ({name})")
        checked.append(part)
    return State(*checked)


def lengths(values: Any, x: Tensor, layer: Any, batched: bool) -> Tensor | None:
    """lengths as an int64 tensor on x's device; also the place where indices beyond a row's end are excused."""
    if values is None:
        indices(layer, x)
        return None
    if not batched:
        raise ValueError("lengths: an unbatched sequence is as long as it is; leave it out")
    tensor = torch.as_tensor(values)
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise ValueError(f"lengths must be integers, got {tensor.dtype}")
    T, B = x.shape[:2]
    if tuple(tensor.shape) != (B,):
        raise ValueError(f"lengths must have shape ({B},), one per row of the batch, got {tuple(tensor.shape)}")
    if readable(tensor):
        low, high = (int(v) for v in torch.aminmax(tensor))
        if low < 1 or high > T:
            raise ValueError(f"lengths must be in 1..{T}, got {low if low < 1 else high}")
    tensor = tensor.to(x.device, torch.int64)
    indices(layer, x, tensor)
    return tensor
