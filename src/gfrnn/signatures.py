"""What a call of a layer gives, for type checkers: output, state, and with `return_gates=True` the gates.

T time, B batch, L layers, H units per layer.
"""

from typing import Literal, Protocol, TypeVar, overload

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

S = TypeVar("S")  # a layer's state: h (L, B, H), or the pair (h, c)
Lengths = Tensor | list[int] | None


class Calls(Protocol[S]):
    """A tensor in, a tensor out; a PackedSequence in, a PackedSequence out."""

    @overload
    def __call__(
        self, input: Tensor, hx: S | None = None, *, lengths: Lengths = None, return_gates: Literal[False] = False
    ) -> tuple[Tensor, S]: ...

    @overload
    def __call__(
        self, input: Tensor, hx: S | None = None, *, lengths: Lengths = None, return_gates: Literal[True]
    ) -> tuple[Tensor, S, Tensor]: ...

    @overload
    def __call__(
        self, input: PackedSequence, hx: S | None = None, *, lengths: None = None, return_gates: Literal[False] = False
    ) -> tuple[PackedSequence, S]: ...

    @overload
    def __call__(
        self, input: PackedSequence, hx: S | None = None, *, lengths: None = None, return_gates: Literal[True]
    ) -> tuple[PackedSequence, S, PackedSequence]: ...
