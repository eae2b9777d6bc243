"""Drop-in recurrent layers: GFRNN (tanh), GFGRU and GFLSTM, called like torch.nn.RNN, GRU and LSTM.

Parameters, initialisation, shapes and state live here; the maths is in equations.py, the speed behind ops.scan.
T time, B batch, L layers, H units per layer, I input.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from gfrnn import checks, ops
from gfrnn.equations import GATES, Spec, State, Weights

# weight name -> field of equations.Weights
FIELDS = {
    "weight_ih": "W",
    "weight_hh": "U",
    "weight_fb": "U_candidate",
    "bias": "b",
    "weight_ig": "w_g",
    "weight_hg": "u_g",
    "bias_g": "b_g",
}


class GatedFeedback(nn.Module):
    """What the three layers share. Use GFRNN, GFGRU or GFLSTM."""

    unit: str
    weight_ih_l0: nn.Parameter

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        wiring: str = "gated",
        gates_see: str = "all",
        input_skip: bool = False,
        output: str = "last",
        backend: str = "auto",
        forget_bias: float = 0.0,
        proj_size: int = 0,
    ) -> None:
        super().__init__()
        checks.sizes(input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        checks.flags(bias=bias, batch_first=batch_first, input_skip=input_skip)
        checks.choice("wiring", wiring, ("gated", "feedback", "stacked"))
        checks.choice("gates_see", gates_see, ("all", "own"))
        checks.choice("output", output, ("last", "all"))
        checks.unsupported(bidirectional=bidirectional, proj_size=proj_size)
        checks.dropout(dropout, num_layers)
        checks.forget_bias(forget_bias, self.unit)
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional, self.proj_size = False, 0
        self.wiring, self.gates_see, self.input_skip, self.output = wiring, gates_see, input_skip, output
        self.forget_bias = float(forget_bias)
        self.backend = backend
        for j in range(num_layers):
            for name, shape in self.layer_shapes(j).items():
                parameter = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
                self.register_parameter(f"{name}_l{j}", parameter)
        self.reset_parameters()

    @property
    def backend(self) -> str:
        """Which backend runs the layer; may be set at any time (see `gfrnn doctor` for what there is)."""
        return self._backend

    @backend.setter
    def backend(self, name: str) -> None:
        self._backend = ops.check_backend(name)

    @property
    def spec(self) -> Spec:
        sizes = (self.input_size, self.hidden_size, self.num_layers)
        return Spec(self.unit, self.wiring, *sizes, self.gates_see, self.input_skip)

    def layer_shapes(self, j: int) -> dict[str, tuple[int, ...]]:
        """Names (without `_l{j}`) and shapes of layer j's parameters, in the order of the state_dict."""
        G, H, L = GATES[self.unit], self.hidden_size, self.num_layers
        I = self.input_size if j == 0 else H + self.input_size * self.input_skip
        shapes: dict[str, tuple[int, ...]] = {"weight_ih": (G * H, I)}
        if self.wiring == "stacked":
            shapes["weight_hh"] = (G * H, H)
        elif self.gates_see == "own" and G > 1:
            shapes |= {"weight_hh": ((G - 1) * H, H), "weight_fb": (H, L * H)}
        else:
            shapes["weight_hh"] = (G * H, L * H)
        if self.bias:
            shapes["bias"] = (G * H,)
        if self.wiring == "gated":
            shapes |= {"weight_ig": (L, I), "weight_hg": (L, L * H)}
            if self.bias:
                shapes["bias_g"] = (L,)
        return shapes

    def reset_parameters(self) -> None:
        """Start afresh, as the paper's models did.

        ===========================  =====================================================
        weight_ih, weight_ig         uniform(-0.08, 0.08)
        weight_hh, weight_fb         every H x H block (one per gate and source) orthogonal
        weight_hg                    uniform(-0.08, 0.08)
        bias                         0; an LSTM's forget rows: `forget_bias` (paper: 0)
        bias_g                       0, so that the global reset gates start near 0.5
        ===========================  =====================================================
        """
        H = self.hidden_size
        for name, parameter in self.named_parameters():
            kind = name.rsplit("_l", 1)[0]
            with torch.no_grad():
                if kind in ("weight_hh", "weight_fb"):
                    for rows in parameter.split(H, dim=0):
                        for block in rows.split(H, dim=1):
                            nn.init.orthogonal_(block)
                elif kind.startswith("weight"):
                    nn.init.uniform_(parameter, -0.08, 0.08)
                else:
                    nn.init.zeros_(parameter)
                if kind == "bias" and self.unit == "lstm":
                    nn.init.constant_(parameter[H : 2 * H], self.forget_bias)

    def flatten_parameters(self) -> None:
        """Does nothing; torch.nn.LSTM has it, so code that calls it keeps working."""

    def weights(self) -> list[Weights]:
        """The parameters, as equations.py names them."""
        names = list(self.layer_shapes(0))
        return [
            Weights(**{FIELDS[name]: getattr(self, f"{name}_l{j}") for name in names}) for j in range(self.num_layers)
        ]

    def initial_state(self, batch: int | None = None) -> Any:
        """The zero state: (L, batch, H), or (L, H) without `batch`; a pair (h, c) for GFLSTM."""
        shape = (self.num_layers, self.hidden_size) if batch is None else (self.num_layers, batch, self.hidden_size)

        def zeros() -> Tensor:
            return torch.zeros(shape, dtype=self.weight_ih_l0.dtype, device=self.weight_ih_l0.device)

        return (zeros(), zeros()) if self.unit == "lstm" else zeros()

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: Any = None,
        *,
        lengths: Tensor | list[int] | None = None,
        return_gates: bool = False,
    ) -> tuple[Any, ...]:
        """All timesteps: output, last state, and the global reset gates if asked for.

        input   (T, B, I); (B, T, I) if batch_first; (T, I) unbatched; or a PackedSequence. Integer input has no last
                axis: (T, B), (B, T) or (T,) indices stand for one-hot vectors, which are never made.
        hx      the state to start from, (L, B, H) or unbatched (L, H); GFLSTM: a pair (h_0, c_0). Default: zeros.
        lengths (B,), each in 1..T: a row's steps beyond its length are ignored, its outputs there are 0 and its last
                state is that at its own length.
        return_gates  adds g (T, B, L_to, L_from) as the last item, laid out in time and batch as the output is.
        """
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx, lengths, return_gates)
        checks.input(self, input)
        batched = input.dim() == (3 if input.is_floating_point() else 2)
        if not batched:
            input = input.unsqueeze(0 if self.batch_first else 1)
        x = input.transpose(0, 1) if self.batch_first else input
        state = self._start(hx, x.shape[1], batched)
        h, state, g = self._scan(x, state, checks.lengths(lengths, x, self, batched), return_gates)
        if self.batch_first:
            h, g = h.transpose(0, 1), None if g is None else g.transpose(0, 1)
        if not batched:
            batch_axis = 0 if self.batch_first else 1
            h, g = h.squeeze(batch_axis), None if g is None else g.squeeze(batch_axis)
            state = state.map(lambda s: s.squeeze(1))
        return self._answer(h, state, g)

    def step(self, x_t: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """One timestep, for streaming: x_t (B, I), or (B,) indices -> this step's output (B, H), and the new state."""
        checks.step_input(self, x_t)
        batched = x_t.dim() == (2 if x_t.is_floating_point() else 1)
        x = x_t[None] if batched else x_t[None, None]
        h, new, _ = self._scan(x, self._start(state, x.shape[1], batched), None, False)
        if not batched:
            h, new = h.squeeze(1), new.map(lambda s: s.squeeze(1))
        y_t, last = self._answer(h.squeeze(0), new, None)
        return y_t, last

    def _start(self, hx: Any, batch: int, batched: bool) -> State:
        if hx is None:
            hx = self.initial_state(batch)
            return State(*hx) if self.unit == "lstm" else State(hx)
        return checks.state(self, hx, batch, batched)

    def _scan(
        self, x: Tensor, state: State, lengths: Tensor | None, return_gates: bool
    ) -> tuple[Tensor, State, Tensor | None]:
        """x (T, B, I) or (T, B) -> the layer's output (T, B, H or L*H), last state, gates."""
        weights = self.weights()
        masks = None
        if self.training and self.dropout > 0 and self.num_layers > 1:
            ones = weights[0].W.new_ones(*x.shape[:2], self.num_layers - 1, self.hidden_size)
            masks = nn.functional.dropout(ones, self.dropout)
        if not x.is_floating_point():
            x = x.long()
        no_autocast: AbstractContextManager[Any] = nullcontext()
        if checks.autocasting(x):
            # A recurrence multiplies its rounding errors, so autocast leaves it in the weights' precision.
            if x.is_floating_point():
                x = x.to(weights[0].W.dtype)
            state = state.map(lambda s: s.to(weights[0].W.dtype))
            no_autocast = torch.autocast(x.device.type, enabled=False)
        with no_autocast:
            scanned = ops.scan(
                x,
                state,
                weights,
                self.spec,
                self.backend,
                lengths=lengths,
                dropout_masks=masks,
                return_gates=return_gates,
            )
        h = scanned.h if self.output == "all" else scanned.h[..., -self.hidden_size :].contiguous()
        return h, scanned.state, scanned.gates

    def _forward_packed(self, input: PackedSequence, hx: Any, lengths: Any, return_gates: bool) -> tuple[Any, ...]:
        if lengths is not None:
            raise ValueError("lengths: a PackedSequence carries its own, pass one or the other")
        data, batch_sizes, order, back = input
        checks.packed_data(self, data)
        x, row_lengths = pad_packed_sequence(PackedSequence(data, batch_sizes))
        checks.indices(self, data)
        state = self._start(hx, x.shape[1], batched=True)
        if order is not None:
            state = state.map(lambda s: s.index_select(1, order))
        h, state, g = self._scan(x, state, row_lengths.to(x.device), return_gates)
        if back is not None:
            state = state.map(lambda s: s.index_select(1, back))

        def pack(padded: Tensor) -> PackedSequence:
            return PackedSequence(pack_padded_sequence(padded, row_lengths).data, batch_sizes, order, back)

        return self._answer(pack(h), state, None if g is None else pack(g))

    def _answer(self, output: Any, state: State, g: Any) -> tuple[Any, ...]:
        last = (state.h, state.c) if self.unit == "lstm" else state.h
        return (output, last) if g is None else (output, last, g)

    def extra_repr(self) -> str:
        shown = [f"{self.input_size}, {self.hidden_size}"]
        defaults = {
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
            "dropout": 0.0,
            "gates_see": "all",
            "input_skip": False,
            "output": "last",
            "forget_bias": 0.0,
            "backend": "auto",
        }
        shown += [f"{name}={getattr(self, name)!r}" for name, usual in defaults.items() if getattr(self, name) != usual]
        return ", ".join([*shown, f"wiring={self.wiring!r}"])


class GFRNN(GatedFeedback):
    """tanh units: h_t^j = tanh(W^{j-1->j} h_t^{j-1} + sum_i g^{i->j} U^{i->j} h_{t-1}^i + b). Called like torch.nn.RNN.

    >>> layer = GFRNN(10, 20, num_layers=3)
    >>> output, h_n = layer(torch.randn(7, 4, 10))  # (T, B, I)
    >>> output.shape, h_n.shape
    (torch.Size([7, 4, 20]), torch.Size([3, 4, 20]))
    """

    unit = "tanh"


class GFGRU(GatedFeedback):
    """Gated recurrent units: h_t = (1 - z_t) h_{t-1} + z_t h~_t, the paper's z. Called like torch.nn.GRU.

    h~_t^j = tanh(W^{j-1->j} h_t^{j-1} + r_t^j * sum_i g^{i->j} U^{i->j} h_{t-1}^i + b)

    >>> layer = GFGRU(10, 20, num_layers=3, batch_first=True)
    >>> output, h_n, g = layer(torch.randn(4, 7, 10), return_gates=True)  # (B, T, I)
    >>> g.shape  # who listened to whom: (B, T, L_to, L_from)
    torch.Size([4, 7, 3, 3])
    """

    unit = "gru"


class GFLSTM(GatedFeedback):
    """Long short-term memory, called like torch.nn.LSTM.

    c~_t^j = tanh(W_c^{j-1->j} h_t^{j-1} + sum_i g^{i->j} U_c^{i->j} h_{t-1}^i + b_c)

    >>> layer = GFLSTM(10, 20, num_layers=3)
    >>> output, (h_n, c_n) = layer(torch.randn(7, 4, 10))  # (T, B, I)

    It is this loop, fast:

    >>> from gfrnn.equations import State, step
    >>> x, state = torch.randn(7, 4, 10), State(*layer.initial_state(4))
    >>> for x_t in x:
    ...     state, g = step(x_t, state, layer.weights(), layer.spec)
    >>> torch.allclose(state.h, layer(x)[1][0], atol=1e-6)
    True
    """

    unit = "lstm"
