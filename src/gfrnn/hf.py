"""Text models for Hugging Face transformers (the extra [hf]); importing this registers them with its Auto classes.

    import gfrnn.hf
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder)    # written by `gfrnn export RUN --format hf`
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = model.generate(**tokenizer("The ", return_tensors="pt"), max_new_tokens=100, do_sample=True)
    print(tokenizer.decode(ids[0]))

A token is a byte, its number the model's symbol number; there is no end of text. B rows, T time, V symbols.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationMixin,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizer,
)
from transformers.utils import ModelOutput

from gfrnn.layers import GatedFeedback
from gfrnn.models.char_lm import CharLM
from gfrnn.models.softmax import SoftmaxHead
from gfrnn.models.vocabulary import ENWIK8, STAND_IN

PAD = "<pad>"


class GFRNNConfig(PreTrainedConfig):
    """The arguments of `CharLM`, under `char_lm`; transformers' own options beside it."""

    model_type = "gfrnn"

    def __init__(self, char_lm: dict[str, Any] | None = None, **options: Any) -> None:
        self.char_lm = CharLM(device="meta").config if char_lm is None else dict(char_lm)
        self.vocab_size = len(self.char_lm.get("vocabulary", ENWIK8))
        self.hidden_size = self.char_lm.get("hidden_size", 140)
        self.num_hidden_layers = self.char_lm.get("num_layers", 3)
        options = {name: value for name, value in options.items() if name not in vars(self)}
        super().__init__(**{"pad_token_id": self.vocab_size, **options})


@dataclass
class GFRNNOutput(ModelOutput):
    loss: Tensor | None = None
    logits: Tensor | None = None
    state: Any = None  # what transformers hands back as the argument `state` in `generate`


class GFRNNForCausalLM(PreTrainedModel, GenerationMixin):
    """`CharLM` (its attribute `char_lm`) with the arguments and results that transformers expects."""

    config_class = GFRNNConfig
    base_model_prefix = "char_lm"
    _is_stateful = True

    def __init__(self, config: GFRNNConfig) -> None:
        super().__init__(config)
        self.char_lm = CharLM.from_config({"vocabulary": list(ENWIK8), **config.char_lm})
        self.post_init()

    @classmethod
    def from_char_lm(cls, model: CharLM) -> "GFRNNForCausalLM":
        """With a copy of its weights."""
        made = cls(GFRNNConfig(model.config))
        made.char_lm.to(model.head.weight.dtype).load_state_dict(model.state_dict())
        return made.eval()

    @torch.no_grad()
    def _init_weights(self, module: torch.nn.Module) -> None:
        if isinstance(module, GatedFeedback | SoftmaxHead):
            module.reset_parameters()

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # else generate would pass a cache of keys and values

    def _reorder_cache(self, state: Any, rows: Tensor) -> Any:
        """The state of the beams that go on."""
        return tuple(self._reorder_cache(part, rows) for part in state) if isinstance(state, tuple) else state[:, rows]

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        state: Any = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        return_dict: bool | None = None,
        logits_to_keep: int = 0,
        **options: Any,
    ) -> GFRNNOutput | tuple[Any, ...]:
        """input_ids (B, T), state as the layer's -> logits (B, T, V), the state to go on from, the loss of `labels`.

        What `attention_mask` (B, T or longer: its end counts) leaves out, at either side of a row, is never read.
        Labels are those of `input_ids`, shifted here; -100 is ignored.
        """
        if options.get("inputs_embeds") is not None:
            raise ValueError("inputs_embeds: the model reads bytes, there are no embeddings")
        features, state = self._features(input_ids, attention_mask, state)
        logits = self.char_lm.head(features[:, -logits_to_keep:] if logits_to_keep else features)
        loss = None
        if labels is not None:
            more = {name: options[name] for name in ("num_items_in_batch",) if name in options}
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **more)
        found = GFRNNOutput(loss=loss, logits=logits, state=state if use_cache is not False else None)
        return found.to_tuple() if return_dict is False else found

    def _features(self, ids: Tensor, mask: Tensor | None, state: Any) -> tuple[Tensor, Any]:
        """(B, T) -> what the softmax reads (B, T, K), and the state after each row's last byte."""
        layer, length = self.char_lm.layer, ids.shape[1]
        if mask is None or bool(mask[:, -length:].all()):
            features, state = layer(ids.t(), state)
            return features.transpose(0, 1), state
        mask = mask[:, -length:].bool()
        if not mask.any(1).all():
            raise ValueError("attention_mask: a row without a byte")
        # Every row moves to the front, is read for its own length, and moves back.
        first, places = mask.int().argmax(1, keepdim=True), torch.arange(length, device=ids.device)
        if not torch.equal(mask, (places >= first) & (places < first + mask.sum(1, keepdim=True))):
            raise ValueError("attention_mask: the bytes of a row must stand together")
        there, back = (places + first) % length, (places - first) % length
        front = ids.masked_fill(~mask, 0).gather(1, there)
        features, state = layer(front.t(), state, lengths=mask.sum(1))
        features = features.transpose(0, 1)
        return features.gather(1, back[..., None].expand(features.shape)), state


class GFRNNTokenizer(PreTrainedTokenizer):
    """Bytes to symbol numbers; a byte the model does not know is read as '?'. Padding comes first, as `generate` needs.

    In tokens, which are text, a byte stands as the character of its number.
    """

    model_input_names: list[str] = ["input_ids", "attention_mask"]  # noqa: RUF012 (as transformers declares it)

    def __init__(self, vocabulary: list[int] | None = None, **options: Any) -> None:
        self.symbols = ENWIK8 if vocabulary is None else bytes(vocabulary)
        self.numbers = {chr(byte): number for number, byte in enumerate(self.symbols)}
        options = {"pad_token": PAD, "padding_side": "left", "clean_up_tokenization_spaces": False, **options}
        super().__init__(vocabulary=list(self.symbols), **options)

    @property
    def vocab_size(self) -> int:
        return len(self.symbols)

    def get_vocab(self) -> dict[str, int]:
        return {**self.numbers, **self.added_tokens_encoder}

    def _tokenize(self, text: str, **options: Any) -> list[str]:
        return [chr(byte) for byte in text.encode("utf-8", "surrogateescape")]

    def _convert_token_to_id(self, token: str) -> int:
        return self.numbers.get(token, self.numbers.get(STAND_IN.decode(), 0))

    def _convert_id_to_token(self, index: int) -> str:
        return chr(self.symbols[index])

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        return b"".join(token.encode() if token == PAD else bytes([ord(token)]) for token in tokens).decode(
            "utf-8", "replace"
        )

    def build_inputs_with_special_tokens(self, ids: list[int], more: list[int] | None = None) -> list[int]:
        return ids + (more or [])

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple[str, ...]:
        return ()  # it is in tokenizer_config.json


AutoConfig.register("gfrnn", GFRNNConfig, exist_ok=True)
AutoModelForCausalLM.register(GFRNNConfig, GFRNNForCausalLM, exist_ok=True)
AutoTokenizer.register(GFRNNConfig, GFRNNTokenizer, exist_ok=True)
