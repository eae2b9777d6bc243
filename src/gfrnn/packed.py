"""A PackedSequence as the scan reads it: padded, its rows by falling length; and back."""

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from gfrnn.equations import State


class Rows:
    """x (T, B, ...) and lengths (B,) of a PackedSequence."""

    def __init__(self, packed: PackedSequence) -> None:
        data, self.batch_sizes, self.order, self.back = packed
        self.x, self.on_cpu = pad_packed_sequence(PackedSequence(data, self.batch_sizes))
        self.lengths = self.on_cpu.to(data.device)

    def sort(self, state: State) -> State:
        """The caller's rows in the order of x."""
        order = self.order
        return state if order is None else state.map(lambda s: s.index_select(1, order))

    def unsort(self, state: State) -> State:
        back = self.back
        return state if back is None else state.map(lambda s: s.index_select(1, back))

    def pack(self, padded: Tensor) -> PackedSequence:
        data = pack_padded_sequence(padded, self.on_cpu).data
        return PackedSequence(data, self.batch_sizes, self.order, self.back)
