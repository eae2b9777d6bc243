"""Rows of different lengths, in three ways that agree: packed, with lengths, and one by one."""

import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence, pad_sequence

from gfrnn import GFLSTM


def main() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    layer = GFLSTM(5, 8, num_layers=2)
    rows = [torch.randn(length, 5) for length in (3, 6, 2)]
    lengths = torch.tensor([len(row) for row in rows])

    packed, _ = layer(pack_sequence(rows, enforce_sorted=False))  # as with nn.LSTM
    padded, _ = layer(pad_sequence(rows), lengths=lengths)  # without packing: beyond a row's end outputs are 0
    alone = pad_sequence([layer(row)[0] for row in rows])
    return pad_packed_sequence(packed)[0], padded, alone


if __name__ == "__main__":
    packed, padded, alone = main()
    print("largest differences:", (packed - padded).abs().max().item(), (padded - alone).abs().max().item())
