"""torch.export: one timestep as a program for torch's own runtimes (AOTInductor, ExecuTorch, `torch.export.load`)."""

from pathlib import Path

import torch

from gfrnn.export.onnx_files import quietly
from gfrnn.export.step import Step, check
from gfrnn.models.char_lm import CharLM

PROGRAM = "step.pt2"


def write(model: CharLM, folder: Path) -> dict[str, float]:
    """Write the program to `folder`; returns how far it is from the model."""
    step = Step(model)
    with quietly():
        program = torch.export.export(step, step.example(), dynamic_shapes=step.dynamic_shapes())
        torch.export.save(program, folder / PROGRAM, extra_files={"vocabulary": model.vocabulary.symbols.hex()})
    return {PROGRAM: check(PROGRAM, model, program.module())}
