"""Reading the gates: which layer listens to which while the packaged model reads a text."""

import sys

import torch
from torch import Tensor

from gfrnn.models import CharLM

TEXT = "The '''gate''' of a [[city]] is opened in the morning. It is closed in the evening."


def gates(model: CharLM, text: str) -> Tensor:
    """(T, L_to, L_from): how much of each layer's past every layer hears at every byte."""
    ids = torch.from_numpy(model.vocabulary.encode(text.encode(), unknown="replace")).long()
    with torch.no_grad():
        _, _, g = model.layer(ids[:, None], return_gates=True)
    return g[:, 0]


def main(text: str = TEXT) -> Tensor:
    g = gates(CharLM.from_pretrained("gf-lstm-enwik8"), text)
    print("mean gate   " + "".join(f"from {i + 1}  " for i in range(g.shape[2])))
    for to, row in enumerate(g.mean(0), start=1):
        print(f"to layer {to}  " + "".join(f"{value:7.2f}" for value in row.tolist()))
    widest = g.std(0).flatten().argmax().item()
    to, source = divmod(int(widest), g.shape[2])
    most = g[:, to, source].argsort(descending=True)[:5].tolist()
    words = " ".join(repr(text.encode()[: place + 1][-6:].decode(errors="replace")) for place in most)
    print(f"the gate that moves most leads from layer {source + 1} to {to + 1}; it is widest after {words}")
    return g


if __name__ == "__main__":
    main(*sys.argv[1:])
