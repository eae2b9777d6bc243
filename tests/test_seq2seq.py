"""The encoder-decoder: shapes, padding, teacher forcing against free running, greedy against beam."""

import itertools
import math
from pathlib import Path

import pytest
import torch

from gfrnn.equations import UNITS, WIRINGS
from gfrnn.errors import DataError
from gfrnn.models import CharLM
from gfrnn.models.program_batch import Batch, collate
from gfrnn.models.program_symbols import SOURCE_SIZE, TARGET_END, TARGET_PAD, TARGET_SIZE, TARGET_START, encode_target
from gfrnn.models.seq2seq import Seq2Seq
from gfrnn.tasks.programs import Program, Settings, stream

UNITS_AND_WIRINGS = list(itertools.product(UNITS, WIRINGS))


def small_model(unit: str = "lstm", wiring: str = "gated", **options: object) -> Seq2Seq:
    torch.manual_seed(2)
    model = Seq2Seq(unit, hidden_size=7, num_layers=3, wiring=wiring, **options).double()
    with torch.no_grad():  # as if trained: the fresh one answers everything alike
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.8)
        model.head.weight.mul_(8)
        model.head.bias[TARGET_END] += 5
    return model


def batch_of(count: int = 6) -> Batch:
    return collate(list(stream(3, count, Settings(max_length=4, max_nesting=3))))


def repadded(batch: Batch, extra: int) -> Batch:
    """The same programs with more padding, and any symbols at all in it."""
    generator = torch.Generator().manual_seed(extra)

    def more(ids: torch.Tensor, lengths: torch.Tensor, size: int) -> torch.Tensor:
        ids = torch.cat([ids, ids.new_zeros(extra, ids.shape[1])])
        beyond = torch.arange(len(ids))[:, None] >= lengths
        return torch.where(beyond, torch.randint(size, ids.shape, generator=generator), ids)

    source = more(batch.source, batch.source_lengths, SOURCE_SIZE)
    target = more(batch.target, batch.target_lengths, TARGET_SIZE)
    return Batch(source, batch.source_lengths, target, batch.target_lengths)


@pytest.mark.parametrize(("unit", "wiring"), UNITS_AND_WIRINGS)
def test_padding_enters_nothing(unit: str, wiring: str) -> None:
    model, batch = small_model(unit, wiring), batch_of()
    other = repadded(batch, 3)
    torch.testing.assert_close(model.loss(batch), model.loss(other), rtol=1e-12, atol=0)
    for one, two in zip(model.measure(batch), model.measure(other), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-12, atol=0)
    model.loss(batch).sum().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model.loss(other).sum().backward()
    for one, parameter in zip(gradients, model.parameters(), strict=True):
        torch.testing.assert_close(one, parameter.grad, rtol=1e-9, atol=1e-12)


def test_rows_alone_and_together() -> None:
    model, programs = small_model(), list(stream(3, 6, Settings(max_length=4, max_nesting=3)))
    together = model.loss(collate(programs))
    alone = torch.cat([model.loss(collate([program])) for program in programs])
    torch.testing.assert_close(together, alone, rtol=1e-10, atol=0)


@pytest.mark.parametrize("unit", ["gru", "lstm"])
def test_loss_is_the_chain_of_single_steps(unit: str) -> None:
    """One symbol at a time from the encoder's last state: also proves that the state and not more is handed on."""
    model = small_model(unit)
    program = next(stream(3, 1))
    state = model._encode([program.source])
    symbol, nats = torch.tensor([TARGET_START]), 0.0
    for target in encode_target(program.target):
        output, state = model.decoder.step(symbol, state)
        nats -= model.head(output).log_softmax(-1)[0, target].item()
        symbol = torch.tensor([target])
    assert model.loss(collate([program])).item() == pytest.approx(nats, rel=1e-10)


def test_every_parameter_learns_and_the_encoder_through_the_state_alone() -> None:
    model, batch = small_model(), batch_of()
    model.loss(batch).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


def test_exact_match_is_the_greedy_answer_being_right() -> None:
    """Targets are taken from the model's own answers, so that some rows are right, some nearly, some not at all."""
    model = small_model()
    sources = [p.source for p in stream(3, 120, Settings(max_length=4, max_nesting=3))]
    found = zip(sources, model.greedy(sources, most=12), strict=True)
    ended = [(source, answer.text) for source, answer in found if len(answer.confidence) > len(answer.text)]
    assert len({answer for _, answer in ended}) > 10
    targets = [answer[:-1] + "5" if i % 3 == 0 else answer for i, (_, answer) in enumerate(ended)]
    batch = collate([Program(source, target, 4, 3) for (source, _), target in zip(ended, targets, strict=True)])
    nats, right = model.measure(batch)
    torch.testing.assert_close(nats, model.loss(batch), rtol=1e-10, atol=0)
    exact = (right == batch.target_lengths).tolist()
    assert exact == [answer == target for (_, answer), target in zip(ended, targets, strict=True)]
    assert 10 < sum(exact) < len(exact) - 10


def test_a_wide_beam_finds_the_best_of_all_short_answers() -> None:
    model = small_model()
    source = "print((3+4))"
    found = model.beam(source, width=4000, most=3)
    texts = ["".join(digits) for n in range(3) for digits in itertools.product("0123456789-", repeat=n)]
    batch = collate([next(stream(1, 1))._replace(source=source, target=text) for text in texts])
    with torch.no_grad():
        log_p = model(batch)[..., :TARGET_PAD].log_softmax(-1)
    said = log_p.gather(-1, batch.target.clamp(max=TARGET_PAD - 1)[..., None])[..., 0].where(batch.real, 0).sum(0)
    scores = dict(zip(texts, said.tolist(), strict=True))
    ended = [answer for answer in found if len(answer.confidence) > len(answer.text)]
    assert [answer.text for answer in ended[:20]] == sorted(scores, key=scores.get, reverse=True)[:20]
    best = max(scores, key=scores.get)
    assert ended[0].probability == pytest.approx(math.exp(scores[best]), rel=1e-9)


def test_beam_of_one_is_greedy_and_wider_is_no_worse() -> None:
    model = small_model()
    for program in stream(5, 20, Settings(max_length=4, max_nesting=3)):
        greedy = model.greedy([program.source], most=10)[0]
        assert model.beam(program.source, width=1, most=10)[0].text == greedy.text
        answers = model.beam(program.source, width=5, most=10)
        assert [a.probability for a in answers] == sorted((a.probability for a in answers), reverse=True)
        assert answers[0].probability >= greedy.probability * (1 - 1e-9)


def test_answer_is_text_and_rows_do_not_disturb_each_other() -> None:
    model = small_model()
    sources = [p.source for p in stream(5, 10)]
    together = model.greedy(sources, most=20)
    for source, answer in zip(sources, together, strict=True):
        alone = model.greedy([source], most=20)[0]
        assert alone.text == answer.text
        assert alone.confidence == pytest.approx(answer.confidence, rel=1e-9)
    assert isinstance(model.answer("print(7)"), str)
    assert isinstance(model.answer("print(7)", beam=3), str)


def test_answers_are_without_dropout_whatever_the_mode() -> None:
    model = small_model(dropout=0.9)
    sources = [p.source for p in stream(3, 8, Settings(max_length=4, max_nesting=3))]
    model.eval()
    quiet = model.greedy(sources), [model.beam(source, 3) for source in sources], model.answer(sources[0])
    model.train()
    assert (model.greedy(sources), [model.beam(source, 3) for source in sources], model.answer(sources[0])) == quiet
    assert model.training
    assert model.decoder.training


def test_nothing_is_asked_and_nothing_can_be_kept() -> None:
    model = small_model()
    assert model.greedy([]) == []
    for wrong in (lambda: model.greedy(["print(1)"], most=0), lambda: model.beam("print(1)", most=-1)):
        with pytest.raises(ValueError, match="most must be at least 1, got"):
            wrong()
    for wrong in (lambda: model.beam("print(1)", 0), lambda: model.answer("print(1)", beam=0)):
        with pytest.raises(ValueError, match="width must be at least 1, got 0"):
            wrong()


def test_unknown_symbols_are_named() -> None:
    with pytest.raises(DataError, match="line 2, column 1: a tab"):
        small_model().answer("a=1;\n\tprint(a)")


def test_save_and_load(tmp_path: Path) -> None:
    model = Seq2Seq("gru", 6, 2, "feedback", gates_see="own")
    model.save_pretrained(tmp_path)
    again = Seq2Seq.from_pretrained(tmp_path)
    assert again.config == model.config
    assert torch.equal(model.loss(batch_of()), again.loss(batch_of()))


def test_a_model_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    CharLM(hidden_size=3, num_layers=1).save_pretrained(tmp_path / "text")
    with pytest.raises(DataError, match=r"holds a text model \(CharLM\), not a program model \(Seq2Seq\)"):
        Seq2Seq.from_pretrained(tmp_path / "text")
    Seq2Seq(hidden_size=3).save_pretrained(tmp_path / "other")
    (tmp_path / "other" / "manifest.json").unlink()
    config = tmp_path / "other" / "config.json"
    config.write_text(config.read_text().replace('"0123456789-"', '"0123456789ab"'))
    with pytest.raises(DataError, match="target_characters are '0123456789ab', those of the task are"):
        Seq2Seq.from_pretrained(tmp_path / "other")


@pytest.mark.parametrize("wrong", [{"unit": "relu"}, {"batch_first": True}, {"wiring": "ring"}])
def test_wrong_options(wrong: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Seq2Seq(hidden_size=3, **wrong)


def test_wide_input_weights_change_only_the_symbol_columns() -> None:
    model = Seq2Seq(hidden_size=10, input_std=0.5)
    for layer in (model.encoder, model.decoder):
        weight = layer.weight_ih_l1
        assert weight[:, : layer.input_size].std().item() == pytest.approx(0.5, rel=0.15)
        assert weight[:, layer.input_size :].abs().max() <= 0.08


@pytest.mark.parametrize(
    ("unit", "hidden_size", "wiring", "parameters"),
    [
        ("lstm", 200, "stacked", 1_742_213),
        ("lstm", 200, "gated", 3_675_917),
        ("gru", 230, "stacked", 1_711_903),
        ("gru", 230, "gated", 3_631_987),
    ],
)
def test_the_papers_sizes(unit: str, hidden_size: int, wiring: str, parameters: int) -> None:
    """Counted by hand from the shapes of the equations, skips included."""
    gates, layers = {"lstm": 4, "gru": 3}[unit], 3
    expected = TARGET_SIZE * (layers * hidden_size + 1)
    for symbols in (SOURCE_SIZE, TARGET_SIZE):
        for layer in range(layers):
            below = symbols + (hidden_size if layer else 0)
            sources = hidden_size * (1 if wiring == "stacked" else layers)
            expected += gates * hidden_size * (below + sources + 1)
            expected += layers * (below + layers * hidden_size + 1) if wiring == "gated" else 0
    with torch.device("meta"):
        model = Seq2Seq(unit, hidden_size, wiring=wiring)
    assert sum(p.numel() for p in model.parameters()) == expected == parameters
