"""A folder for Hugging Face transformers: model, configuration and tokenizer, which its Auto classes read."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from gfrnn.errors import UsageError
from gfrnn.export.onnx_files import quietly
from gfrnn.export.step import SHORT_SEQUENCES, check, parts
from gfrnn.models.char_lm import CharLM
from gfrnn.storage.run_folder import MODEL


def write(model: CharLM, folder: Path) -> dict[str, float]:
    """Write the folder; returns how far the model that is read from it is from `model`."""
    if importlib.util.find_spec("transformers") is None:
        raise UsageError(
            'a Hugging Face folder needs transformers, not installed here: pip install "transformers>=5.3"'
        )
    from transformers.utils import logging

    from gfrnn.hf import GFRNNForCausalLM, GFRNNTokenizer

    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # a blink each, and no sentence of ours
    with quietly():
        GFRNNForCausalLM.from_char_lm(model).save_pretrained(folder)
        GFRNNTokenizer(list(model.vocabulary.symbols)).save_pretrained(folder)
        again = GFRNNForCausalLM.from_pretrained(folder, dtype=model.head.weight.dtype)
    if bars:
        logging.enable_progress_bar()

    def read(symbols: Tensor, *state: Any) -> Sequence[Tensor]:
        found = again(symbols.t(), state=state if model.layer.has_cell else state[0])
        return (found.logits.transpose(0, 1), *parts(found.state))

    return {MODEL: check(MODEL, model, read, SHORT_SEQUENCES)}
