"""What a careful person would write by hand: the paper's character model as a loop over time in plain PyTorch.

Nothing is done twice or in the loop that can be done once or outside it: the products with x_t are one look-up for all
timesteps and layers, every product of the unit-wise and global gates with h*_{t-1} is one matrix product per step, each
layer has one product with the layer below, a scalar gate scales h_{t-1}^i instead of a product, and tensors are
split and unbound (whose derivative is one copy) instead of indexed (whose derivative is a zero tensor each).
The weights are kept the way they are multiplied, so a step packs nothing. Autograd does the backward.

T time, B rows, L layers, H units, V symbols, G gates of the unit. A layer's columns are
[unit-wise gates (G-1)*H | global reset gates L | candidate H].
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gfrnn.equations import UNITS, WIRINGS
from gfrnn.models.char_lm import CharLM

State = tuple[Tensor, tuple[Tensor, ...]]  # h (B, L, H), and the c (B, H) of every layer of an LSTM


class HandLoop(nn.Module):
    """`CharLM`, gated, with the paper's skips, as a loop.

    >>> model = CharLM("gru", hidden_size=4, num_layers=2)
    >>> ids = torch.tensor([[1, 2], [3, 4], [5, 6]])  # (T, B)
    >>> nats, _ = HandLoop(model).nats(ids[:-1], ids[1:])
    >>> torch.allclose(nats, model.nats(ids[:-1], ids[1:])[0], atol=1e-5)
    True
    """

    def __init__(self, model: CharLM) -> None:
        super().__init__()
        layer = model.layer
        has_gates = WIRINGS[layer.wiring].gates is not None
        paper = has_gates and layer.input_skip and layer.output == "all" and layer.gates_see == "all"
        if not paper or layer.normalise:
            raise ValueError("the hand-written loop is of the paper's model: gated, with skips, gates_see='all'")
        self.unit, self.H, self.L = layer.unit, layer.hidden_size, layer.num_layers
        self.V = len(model.vocabulary)
        self.table: nn.Parameter
        self.bias: nn.Parameter
        self.gates: nn.Parameter
        self.head_weight: nn.Parameter
        self.head_bias: nn.Parameter
        for name, tensor in self.packed({name: p.detach() for name, p in model.named_parameters()}).items():
            self.register_parameter(name, nn.Parameter(tensor.contiguous().clone()))

    def packed(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """A CharLM's parameters (or their gradients), the way the loop multiplies them."""
        H, V = self.H, self.V
        parts: dict[str, list[Tensor]] = {"table": [], "bias": [], "gates": []}
        packed = {"head_weight": tensors["head.weight"], "head_bias": tensors["head.bias"]}
        for j in range(self.L):
            W, U, b = (
                self.columns(tensors[f"layer.{unit}_l{j}"], tensors[f"layer.{gate}_l{j}"])
                for unit, gate in (("weight_ih", "weight_ig"), ("weight_hh", "weight_hg"), ("bias", "bias_g"))
            )
            parts["table"].append(W[:, :V].T)
            parts["bias"].append(b)
            parts["gates"].append(U[:-H].T)
            packed[f"candidate{j}"] = U[-H:].T
            if j:
                packed[f"below{j}"] = W[:, V:].T
        return packed | {name: torch.cat(part, dim=-1) for name, part in parts.items()}

    def columns(self, unit: Tensor, gate: Tensor) -> Tensor:
        """The rows of one layer's weights, in the order of our columns."""
        record, blocks = UNITS[self.unit], list(unit.split(self.H))
        candidate = blocks.pop(record.place(record.candidate))
        return torch.cat([*blocks, gate, candidate])

    def initial_state(self, batch: int) -> State:
        zeros = self.head_weight.new_zeros(batch, self.L, self.H)
        return zeros, zeros.unbind(1) if UNITS[self.unit].has_cell else ()

    def features(self, ids: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Symbols (T, B) -> all layers' h_t side by side (T, B, L*H), and the last state."""
        state = self.initial_state(ids.shape[1]) if state is None else state
        rows = []
        for fed in F.embedding(ids, self.table + self.bias).unbind(0):
            state = self.step(fed, state)
            rows.append(state[0])
        return torch.stack(rows).flatten(2), state

    def step(self, fed: Tensor, state: State) -> State:
        """One timestep: `fed` (B, L * columns) is W x_t + b of every layer."""
        H, L = self.H, self.L
        h_prev, c_prev = state
        heard = (h_prev.flatten(1) @ self.gates).chunk(L, dim=1)
        own = h_prev.unbind(1)
        h: list[Tensor] = []
        c: list[Tensor] = []
        for j, pre in enumerate(fed.chunk(L, dim=1)):
            if j:
                pre = torch.addmm(pre, h[-1], getattr(self, f"below{j}"))
            gates, candidate = pre.split([pre.shape[1] - H, H], dim=1)
            gates, g = torch.sigmoid(gates + heard[j]).split([gates.shape[1] - L, L], dim=1)
            scaled, U = (h_prev * g[:, :, None]).flatten(1), getattr(self, f"candidate{j}")
            if self.unit == "tanh":
                h.append(torch.tanh(torch.addmm(candidate, scaled, U)))
            elif self.unit == "gru":
                r, z = gates.chunk(2, dim=1)
                h.append(torch.lerp(own[j], torch.tanh(candidate + r * (scaled @ U)), z))
            else:
                i, f, o = gates.chunk(3, dim=1)
                c.append(f * c_prev[j] + i * torch.tanh(torch.addmm(candidate, scaled, U)))
                h.append(o * torch.tanh(c[-1]))
        return torch.stack(h, 1), tuple(c)

    def logits(self, features: Tensor) -> Tensor:
        return F.linear(features, self.head_weight, self.head_bias)

    def nats(self, ids: Tensor, targets: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Cost in nats of each target (T, B), and the last state."""
        features, state = self.features(ids, state)
        cost = F.cross_entropy(self.logits(features).flatten(0, 1), targets.flatten(), reduction="none")
        return cost.view(targets.shape), state

    def loss(self, ids: Tensor, targets: Tensor) -> Tensor:
        features, _ = self.features(ids)
        return F.cross_entropy(self.logits(features).flatten(0, 1), targets.flatten())

    @torch.inference_mode()
    def generate(self, prompt: Tensor, max_new: int, temperature: float = 1.0) -> Tensor:
        """The `max_new` symbols after `prompt` (T,), one at a time; temperature 0 takes the most probable."""
        features, state = self.features(prompt[:, None])
        logits, drawn, table = self.logits(features[-1]), [], self.table + self.bias
        for _ in range(max_new):
            if temperature == 0:
                symbol = logits.argmax(1)
            else:
                symbol = torch.multinomial(torch.softmax(logits / temperature, dim=1), 1).squeeze(1)
            drawn.append(symbol)
            state = self.step(F.embedding(symbol, table), state)
            logits = self.logits(state[0].flatten(1))
        return torch.cat(drawn) if drawn else prompt[:0]

    def as_layers(self, state: State) -> tuple[Tensor, ...]:
        """The state as a layer has it: h (L, B, H), and c for an LSTM."""
        h, c = state
        return (h.transpose(0, 1), torch.stack(c)) if c else (h.transpose(0, 1),)
