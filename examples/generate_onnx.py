"""Text from step.onnx with numpy and onnxruntime alone: no torch, no gfrnn.

gfrnn export --format onnx --out exported-onnx
python examples/generate_onnx.py exported-onnx/step.onnx "The " 200
"""

import sys

import numpy as np
import onnxruntime


def generate(file: str, prompt: bytes, count: int, temperature: float = 0.8, seed: int = 1) -> bytes:
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    symbols = bytes.fromhex(session.get_modelmeta().custom_metadata_map["vocabulary"])
    _, *parts = session.get_inputs()  # the symbol, then h, and c of an LSTM: (layers, batch, units)
    state = {part.name: np.zeros((part.shape[0], 1, part.shape[2]), np.float32) for part in parts}
    draws, written = np.random.default_rng(seed), bytearray(prompt)
    for place in range(len(prompt) + count - 1):
        symbol = np.array([symbols.index(written[place])])
        logits, *new = session.run(None, {"symbol": symbol, **state})
        state = dict(zip(state, new, strict=True))
        if place >= len(prompt) - 1:
            p = np.exp((logits[0] - logits[0].max()).astype(np.float64) / temperature)
            written.append(symbols[draws.choice(len(symbols), p=p / p.sum())])
    return bytes(written[len(prompt) :])


if __name__ == "__main__":
    print(generate(sys.argv[1], sys.argv[2].encode(), int(sys.argv[3])).decode(errors="replace"))
