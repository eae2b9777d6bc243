"""gfrnn.hf: transformers' doors lead to the same model."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from gfrnn.cli import main
from gfrnn.models import CharLM

transformers: Any
hf: Any

VOCABULARY = bytes(sorted(b" ?abcdefgh\xc3\xa9"))


@pytest.fixture(scope="module", autouse=True)
def _doors() -> None:
    """Not before the first test runs: it takes seconds, and every process of the suite reads every file."""
    global transformers, hf
    transformers = pytest.importorskip("transformers", reason="needs transformers, the extra [hf]")
    hf = pytest.importorskip("gfrnn.hf")


def char_lm(**options: Any) -> CharLM:
    model = CharLM(hidden_size=6, num_layers=2, vocabulary=VOCABULARY, **options).eval()
    model.head.weight.data *= 100  # as sure as a model that has learnt
    return model


def numbers(text: bytes) -> torch.Tensor:
    return torch.tensor([VOCABULARY.index(byte) for byte in text])[None]


@pytest.fixture
def saved(tmp_path: Path) -> tuple[CharLM, Path]:
    model = char_lm()
    hf.GFRNNForCausalLM.from_char_lm(model).save_pretrained(tmp_path / "hf")
    hf.GFRNNTokenizer(list(VOCABULARY)).save_pretrained(tmp_path / "hf")
    return model, tmp_path / "hf"


@pytest.mark.parametrize("unit", ["lstm", "gru"])
@pytest.mark.parametrize("output", ["all", "last"])
def test_logits_are_those_of_the_text_model(unit: str, output: str) -> None:
    model = char_lm(unit=unit, output=output)
    found = hf.GFRNNForCausalLM.from_char_lm(model)(numbers(b"abc fade"))
    true, state = model(numbers(b"abc fade").t())
    assert torch.equal(found.logits, true.transpose(0, 1))
    for one, other in zip(found.state, state, strict=True):
        assert torch.equal(one, other)


def test_a_folder_is_read_by_the_auto_classes(saved: tuple[CharLM, Path]) -> None:
    model, folder = saved
    assert type(transformers.AutoConfig.from_pretrained(folder)) is hf.GFRNNConfig
    again = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert type(again) is hf.GFRNNForCausalLM and again.char_lm.config == model.config
    assert torch.equal(again(numbers(b"bad")).logits, model(numbers(b"bad").t())[0].transpose(0, 1))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert type(tokenizer) is hf.GFRNNTokenizer
    assert tokenizer("a é")["input_ids"] == numbers("a é".encode())[0].tolist()
    assert tokenizer.decode(tokenizer("a é")["input_ids"]) == "a é"
    assert tokenizer.decode(tokenizer("aXb")["input_ids"]) == "a?b"


def test_generate_carries_the_state(saved: tuple[CharLM, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    model, folder = saved
    again = transformers.AutoModelForCausalLM.from_pretrained(folder)
    lengths = []
    forward = hf.GFRNNForCausalLM.forward

    def counted(self: Any, input_ids: torch.Tensor, *args: Any, **options: Any) -> Any:
        lengths.append(input_ids.shape[1])
        return forward(self, input_ids, *args, **options)

    monkeypatch.setattr(hf.GFRNNForCausalLM, "forward", counted)
    written = again.generate(numbers(b"head"), max_new_tokens=12, do_sample=False)
    assert bytes(VOCABULARY[i] for i in written[0, 4:]) == model.generate(b"head", 12, temperature=0)
    assert lengths == [4] + [1] * 11


def test_beams_take_their_states_along(saved: tuple[CharLM, Path]) -> None:
    again = transformers.AutoModelForCausalLM.from_pretrained(saved[1])
    how = {"max_new_tokens": 10, "num_beams": 4, "do_sample": False}
    with_state = again.generate(numbers(b"head"), **how)
    assert torch.equal(with_state, again.generate(numbers(b"head"), **how, use_cache=False))


def test_rows_of_other_lengths_do_not_feel_the_padding(saved: tuple[CharLM, Path]) -> None:
    model, folder = saved
    again, tokenizer = hf.GFRNNForCausalLM.from_pretrained(folder), hf.GFRNNTokenizer.from_pretrained(folder)
    texts = ["head", "a", "bad cafe"]
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    assert batch["input_ids"][1, 0] == len(VOCABULARY)
    written = again.generate(**batch, max_new_tokens=6, do_sample=False)
    for text, row in zip(texts, written, strict=True):
        assert bytes(VOCABULARY[i] for i in row[-6:]) == model.generate(text, 6, temperature=0)
    right = tokenizer(texts, padding=True, padding_side="right", return_tensors="pt")
    found = again(**right)
    torch.testing.assert_close(found.logits[1, :1], model(numbers(b"a").t())[0][:, 0])
    torch.testing.assert_close(found.state[0][:, 1:2], model(numbers(b"a").t())[1][0])


@pytest.mark.parametrize(("mask", "why"), [([[0, 0, 0]], "a row without a byte"), ([[1, 0, 1]], "must stand together")])
def test_masks_that_mean_nothing(mask: list[list[int]], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        hf.GFRNNForCausalLM.from_char_lm(char_lm())(numbers(b"abc"), attention_mask=torch.tensor(mask))


def test_a_loss_is_the_cost_of_what_follows() -> None:
    model, ids = char_lm(), numbers(b"abc fade")
    found = hf.GFRNNForCausalLM.from_char_lm(model)(ids, labels=ids)
    true, _ = model.loss(ids[:, :-1].t(), ids[:, 1:].t())
    torch.testing.assert_close(found.loss, true)


def test_the_trainer_learns(tmp_path: Path) -> None:
    if importlib.util.find_spec("accelerate") is None:
        pytest.skip("needs accelerate, which transformers' Trainer asks for")
    torch.manual_seed(0)
    model = hf.GFRNNForCausalLM(hf.GFRNNConfig(CharLM(hidden_size=6, num_layers=2, vocabulary=VOCABULARY).config))
    row = {"input_ids": numbers(b"abc fade bad")[0], "labels": numbers(b"abc fade bad")[0]}
    options = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=10, learning_rate=0.05, report_to=[], use_cpu=True, disable_tqdm=True,
        save_strategy="no", dataloader_pin_memory=False, logging_steps=1,
    )  # fmt: skip
    trainer = transformers.Trainer(model=model, args=options, train_dataset=[row] * 80)
    trainer.train()
    losses = [record["loss"] for record in trainer.state.log_history if "loss" in record]
    assert len(losses) == 10 and losses == sorted(losses, reverse=True)


def test_the_command_writes_such_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = char_lm()
    model.save_pretrained(tmp_path / "run")
    assert main(["export", str(tmp_path / "run"), "--format", "hf", "--out", str(tmp_path / "out")]) == 0
    out, error = capsys.readouterr()
    assert "model.safetensors agrees with the model to" in out and error == ""
    assert transformers.utils.logging.is_progress_bar_enabled()
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert torch.equal(again(numbers(b"bad")).logits, model(numbers(b"bad").t())[0].transpose(0, 1))


def test_without_transformers_the_command_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    char_lm().save_pretrained(tmp_path / "run")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["export", str(tmp_path / "run"), "--format", "hf", "--out", str(tmp_path / "out")]) == 2
    assert 'pip install "transformers>=5.3"' in capsys.readouterr().err
