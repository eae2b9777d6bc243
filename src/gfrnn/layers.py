"""Drop-in recurrent layers: GFRNN (tanh), GFGRU and GFLSTM, called like torch.nn.RNN, GRU and LSTM.

Arguments, shapes of input and output, and state live here; what the parameters are is in parameters.py, the maths in
equations.py, the speed behind ops.scan. T time, B batch, L layers, H units per layer, I input.
"""

import inspect
from typing import TYPE_CHECKING, Any, Generic

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from gfrnn import checks, foreign, ops, packed, parameters
from gfrnn.equations import BOUNDED_LSTM, GRU, LSTM, TANH, UNITS, WIRINGS, Spec, State, Weights
from gfrnn.names import STARTS
from gfrnn.signatures import Calls, Lengths, S
from gfrnn.torch_names import TorchNames


class GatedFeedback(TorchNames, Generic[S]):
    """What the three layers share. Use GFRNN, GFGRU or GFLSTM."""

    unit: str
    weight_ih_l0: nn.Parameter
    if TYPE_CHECKING:
        __call__: Calls[S]

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
        normalise: bool = False,
        output: str = "last",
        backend: str = "auto",
        forget_bias: float = 0.0,
        input_std: float = 0.0,
        start: str = "paper",
        gate_bias_own: float = 0.0,
        gate_bias_other: float = 0.0,
        proj_size: int = 0,
    ) -> None:
        super().__init__()
        checks.sizes(input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        checks.flags(bias=bias, batch_first=batch_first, input_skip=input_skip, normalise=normalise)
        checks.choice("unit", self.unit, tuple(UNITS))
        checks.choice("wiring", wiring, tuple(WIRINGS))
        checks.choice("gates_see", gates_see, ("all", "own"))
        checks.choice("output", output, ("last", "all"))
        checks.unsupported(bidirectional, proj_size, self.unit)
        # The user's line is one frame further up from a class with an __init__ of its own.
        checks.dropout(dropout, num_layers, frames=3 + ("__init__" in vars(type(self))))
        checks.forget_bias(forget_bias, self.unit)
        checks.input_std(input_std)
        checks.choice("start", start, STARTS)
        checks.start(wiring, num_layers, bias, start, gate_bias_own=gate_bias_own, gate_bias_other=gate_bias_other)
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional, self.proj_size = False, 0
        self.wiring, self.gates_see, self.input_skip, self.output = wiring, gates_see, input_skip, output
        self.normalise = normalise
        self.forget_bias, self.input_std, self.start = float(forget_bias), float(input_std), start
        self.gate_bias_own, self.gate_bias_other = float(gate_bias_own), float(gate_bias_other)
        self.backend = backend
        for j in range(num_layers):
            for name, shape in parameters.shapes(self.spec, bias, j).items():
                parameter = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
                self.register_parameter(f"{name}_l{j}", parameter)
        self.register_load_state_dict_pre_hook(foreign.adopt)
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
        return Spec(self.unit, self.wiring, *sizes, self.gates_see, self.input_skip, self.normalise)

    @property
    def has_cell(self) -> bool:
        """Whether its state is a pair (h, c)."""
        return UNITS[self.unit].has_cell

    def reset_parameters(self) -> None:
        """Start afresh, as the paper's models did.

        ===========================  ======================================================
        weight_ih, weight_ig         uniform(-0.08, 0.08)
        weight_ih, columns of x_t    with `input_std` > 0: normal(0, input_std)
        weight_hh, weight_fb         every H x H block (one per gate and source) orthogonal
        weight_hg                    uniform(-0.08, 0.08)
        bias                         0; an LSTM's forget rows: `forget_bias` (paper: 0)
        gain                         1 (with `normalise`)
        bias_g                       0, so that the global reset gates start near 0.5; or
                                     `gate_bias_own` for the own layer, `gate_bias_other`
        ===========================  ======================================================

        `start` multiplies the orthogonal blocks: "paper" by 1; "scaled" by 1 / sqrt(layers heard); "quiet" those of
        other layers by 0.1; "stack" those of other layers by 0, so that it begins as a conventional stack.
        `input_std` is for inputs of one symbol: a one-hot vector has a fan-in of 1, and the paper's scale starts the
        network nearly silent. On the meta device there is nothing to start.
        """
        for name, parameter in self.named_parameters():
            if not parameter.is_meta:
                start = parameters.start(name, parameter, self)
                parameters.put(parameter, start)

    def weights(self) -> list[Weights]:
        """The parameters, as equations.py names them."""
        return [parameters.as_weights(self, j) for j in range(self.num_layers)]

    def initial_state(self, batch: int | None = None) -> S:
        """The zero state: (L, batch, H), or (L, H) without `batch`; a pair (h, c) for GFLSTM."""
        shape = (self.num_layers, self.hidden_size) if batch is None else (self.num_layers, batch, self.hidden_size)

        def zeros() -> Tensor:
            return torch.zeros(shape, dtype=self.weight_ih_l0.dtype, device=self.weight_ih_l0.device)

        state: Any = (zeros(), zeros()) if self.has_cell else zeros()
        return state

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: Any = None,
        *,
        lengths: Lengths = None,
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

    def step(self, x_t: Tensor, state: S | None = None) -> tuple[Tensor, S]:
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
            return State(*hx) if self.has_cell else State(hx)
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
        x = x if x.is_floating_point() else x.long()
        if checks.autocasting(x):
            # States, gates and sums stay in the weights' precision; see checks.products for what does not.
            x = x.to(weights[0].W.dtype) if x.is_floating_point() else x
            state = state.map(lambda s: s.to(weights[0].W.dtype))
        options: dict[str, Any] = {"lengths": lengths, "dropout_masks": masks, "return_gates": return_gates}
        options["products"] = checks.products(weights[0].W)
        with checks.no_autocast(x):
            scanned = ops.scan(x, state, weights, self.spec, self.backend, **options)
        h = scanned.h if self.output == "all" else scanned.h[..., -self.hidden_size :].contiguous()
        return h, scanned.state, scanned.gates

    def _forward_packed(self, input: PackedSequence, hx: Any, lengths: Any, return_gates: bool) -> tuple[Any, ...]:
        if lengths is not None:
            raise ValueError("lengths: a PackedSequence carries its own, pass one or the other")
        checks.packed_data(self, input.data)
        checks.indices(self, input.data)
        rows = packed.Rows(input)
        state = rows.sort(self._start(hx, rows.x.shape[1], batched=True))
        h, state, g = self._scan(rows.x, state, rows.lengths, return_gates)
        return self._answer(rows.pack(h), rows.unsort(state), None if g is None else rows.pack(g))

    def _answer(self, output: Any, state: State, g: Any) -> tuple[Any, ...]:
        last = (state.h, state.c) if self.has_cell else state.h
        return (output, last) if g is None else (output, last, g)

    def extra_repr(self) -> str:
        shown = [f"{self.input_size}, {self.hidden_size}"]
        _, _, _, *options = inspect.signature(GatedFeedback.__init__).parameters.values()
        for option in options:
            value = getattr(self, option.name, option.default)
            if option.name != "wiring" and value != option.default:
                shown.append(f"{option.name}={value!r}")
        return ", ".join([*shown, f"wiring={self.wiring!r}"])


class GFRNN(GatedFeedback[Tensor]):
    """tanh units: h_t^j = tanh(W^{j-1->j} h_t^{j-1} + sum_i g^{i->j} U^{i->j} h_{t-1}^i + b). Called like torch.nn.RNN.

    >>> layer = GFRNN(10, 20, num_layers=3)
    >>> output, h_n = layer(torch.randn(7, 4, 10))  # (T, B, I)
    >>> output.shape, h_n.shape
    (torch.Size([7, 4, 20]), torch.Size([3, 4, 20]))

    `nonlinearity` may be given, by name or in torch's fourth place, and is "tanh".
    """

    unit = TANH.name

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, *arguments: Any, **options: Any) -> None:
        nonlinearity = options.pop("nonlinearity", "tanh")
        if arguments and isinstance(arguments[0], str):
            nonlinearity, arguments = arguments[0], arguments[1:]
        checks.nonlinearity(nonlinearity)
        super().__init__(input_size, hidden_size, num_layers, *arguments, **options)
        self.nonlinearity = nonlinearity


class GFGRU(GatedFeedback[Tensor]):
    """Gated recurrent units: h_t = (1 - z_t) h_{t-1} + z_t h~_t, the paper's z. Called like torch.nn.GRU.

    h~_t^j = tanh(W^{j-1->j} h_t^{j-1} + r_t^j * sum_i g^{i->j} U^{i->j} h_{t-1}^i + b)

    >>> layer = GFGRU(10, 20, num_layers=3, batch_first=True)
    >>> output, h_n, g = layer(torch.randn(4, 7, 10), return_gates=True)  # (B, T, I)
    >>> g.shape  # who listened to whom: (B, T, L_to, L_from)
    torch.Size([4, 7, 3, 3])
    """

    unit = GRU.name


class GFLSTM(GatedFeedback[tuple[Tensor, Tensor]]):
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

    unit = LSTM.name


class GFBoundedLSTM(GatedFeedback[tuple[Tensor, Tensor]]):
    """Not of the paper: an LSTM with i = 1 - f, whose cell stays in (-1, 1), and three gates instead of four."""

    unit = BOUNDED_LSTM.name


LAYERS: dict[str, type[GatedFeedback]] = {layer.unit: layer for layer in (GFRNN, GFGRU, GFLSTM, GFBoundedLSTM)}
