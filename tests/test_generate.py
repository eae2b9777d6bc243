"""Drawing bytes: the definition, one symbol at a time, and the stream around it."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from gfrnn.errors import DataError, UsageError
from gfrnn.models import CharLM
from gfrnn.models import generation as generate
from gfrnn.models.generation import Sampling, draw, stepper, stream
from gfrnn.report.compare import side_by_side, tag_table, tags


@pytest.fixture(scope="module")
def model() -> CharLM:
    torch.manual_seed(2)
    model = CharLM(hidden_size=8, num_layers=2)
    torch.nn.init.normal_(model.head.weight, std=1.0)
    return model.eval()


def by_hand(logits: list[float], u: float, s: Sampling) -> int:
    """The definition in models/generation.py, in plain Python."""
    if s.temperature == 0:
        return logits.index(max(logits))
    scaled = [x / s.temperature for x in logits]
    kept = sorted(range(len(scaled)), key=lambda i: (-scaled[i], i))[: s.top_k]
    top = max(scaled)
    weight = {i: math.exp(scaled[i] - top) for i in kept}
    total = sum(weight.values())
    p = {i: w / total for i, w in weight.items()}
    if s.top_p is not None:
        few, mass = [], 0.0
        for i in kept:
            if mass >= s.top_p:
                break
            few.append(i)
            mass += p[i]
        p = {i: p[i] for i in few}
    goal, running = u * sum(p.values()), 0.0
    for i in sorted(p):
        running += p[i]
        if running > goal:
            return i
    raise AssertionError


SETTINGS = [
    Sampling(temperature, top_k, top_p)
    for temperature, top_k, top_p in itertools.product((0.0, 0.5, 1.0, 3.0), (None, 1, 3, 99), (None, 0.01, 0.6, 1.0))
]


@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
def test_draw_is_the_definition(sampling: Sampling) -> None:
    torch.manual_seed(1)
    logits = torch.randn(40, 7).mul(2).round(decimals=0)  # rounded: with ties
    uniform = torch.rand(40, dtype=torch.float64)
    expected = [by_hand(row, u, sampling) for row, u in zip(logits.tolist(), uniform.tolist(), strict=True)]
    assert draw(logits, uniform, sampling).tolist() == expected


def test_top_p_stops_at_exactly_p() -> None:
    assert draw(torch.zeros(1, 4), torch.tensor([0.999]), Sampling(top_p=0.5)).tolist() == [1]


def test_frequencies_are_the_probabilities() -> None:
    logits = torch.tensor([0.3, -1.0, 2.0, 0.0]).repeat(10_000, 1)
    uniform = (torch.arange(10_000, dtype=torch.float64) + 0.5) / 10_000
    counts = draw(logits, uniform, Sampling()).bincount(minlength=4) / 10_000
    torch.testing.assert_close(counts, torch.softmax(logits[0], 0), atol=2e-4, rtol=0)


def test_the_same_seed_gives_the_same_text(model: CharLM) -> None:
    texts = [model.generate("The ", 50, seed=seed) for seed in (1, 1, 2)]
    assert len(texts[0]) == 50
    assert texts[0] == texts[1] != texts[2]
    assert model.generate("The ", 20) != model.generate("The ", 20)
    assert model.generate("The ", 20, temperature=0) == model.generate(b"The ", 20, top_k=1)
    assert model.generate("The ", 0) == b""


def test_generated_bytes_continue_the_prompt_as_score_sees_it(model: CharLM) -> None:
    """Greedy bytes are the most probable ones given all before: no other byte scores better anywhere."""
    prompt = b"<page>\n  <title>"
    text = model.generate(prompt, 12, temperature=0)
    for end in range(len(prompt), len(prompt) + 12):
        whole = prompt + text
        chosen = model.score(whole[: end + 1])[-1]
        assert all(model.score(whole[:end] + bytes([other]))[-1] >= chosen - 1e-6 for other in b" aeZ<>[]0\n")


def test_samples_are_independent_of_how_many_there_are(model: CharLM) -> None:
    sampling = Sampling(seed=4)
    three = [b"".join(column) for column in zip(*stream(model, "a", 15, sampling, samples=3), strict=True)]
    assert three[0] == model.generate("a", 15, seed=4)
    assert len(set(three)) == 3


@pytest.mark.parametrize("backend", ["auto", "manual", "reference"])
def test_every_sample_is_the_text_it_would_be_alone(backend: str) -> None:
    """Large enough for a matrix product to sum otherwise when it has more rows."""
    torch.manual_seed(4)
    model = CharLM(hidden_size=48, num_layers=2, backend=backend)
    ids = torch.from_numpy(generate.encode_prompt(model, "ab").astype("int64"))
    for sampling in (Sampling(seed=7), Sampling(0.7, top_k=40, top_p=0.9, seed=7)):
        texts = model.generate("ab", 40, sampling.temperature, sampling.top_k, sampling.top_p, sampling.seed, samples=5)
        in_loop = not generate.TextLoop.why_not(model.layer, model.head)
        for number, text in enumerate(texts):
            alone = generate.drawn(model, ids, 40, sampling, [np.random.default_rng([7, number])], False, in_loop)
            assert text == b"".join(byte for (byte,) in alone)


def test_without_the_op_a_sample_has_the_same_bits_as_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts hide the last bits: what is drawn from must be equal, not close."""
    seen: list[torch.Tensor] = []

    def watched(logits: torch.Tensor, uniform: torch.Tensor, sampling: Sampling) -> torch.Tensor:
        seen.append(logits.clone())
        return draw(logits, uniform, sampling)

    monkeypatch.setattr(generate, "draw", watched)
    torch.manual_seed(4)
    model = CharLM(hidden_size=48, num_layers=2, backend="manual")
    model.generate("ab", 10, seed=7, samples=5)
    together, seen[:] = torch.stack(seen), []
    model.generate("ab", 10, seed=7)
    assert torch.equal(torch.stack(seen)[:, 0], together[:, 0])


@pytest.mark.parametrize("samples", [0, -1])
def test_samples_that_make_no_sense_are_refused(model: CharLM, samples: int) -> None:
    with pytest.raises(UsageError, match=f"samples 1 or more, got 3 and {samples}"):
        model.generate("a", 3, samples=samples)


def test_samples_of_no_characters(model: CharLM) -> None:
    assert model.generate("a", 0, samples=3) == [b"", b"", b""]
    assert model.generate("a", 0) == b""
    assert model.generate("a", 4, seed=1, samples=1) == [model.generate("a", 4, seed=1)]


def test_a_long_prompt_is_read_in_portions(model: CharLM, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = b"All work and no play. " * 20
    whole = model.generate(prompt, 8, seed=1)
    monkeypatch.setattr(generate, "PROMPT_CHUNK", 37)
    assert model.generate(prompt, 8, seed=1) == whole


@pytest.mark.parametrize("backend", ["auto", "manual", "reference"])
@pytest.mark.parametrize("samples", [1, 2])
def test_an_abandoned_stream_leaves_the_model_as_it_was(backend: str, samples: int) -> None:
    torch.manual_seed(3)
    model = CharLM(hidden_size=8, num_layers=2, dropout=0.5, backend=backend)
    whole = list(stream(model.eval(), "The ", 9, Sampling(seed=1), samples))
    model.train()
    model.head.eval()  # its own affair
    going = stream(model, "The ", 9, Sampling(seed=1), samples)
    taken = []
    for _ in range(3):  # held, not finished
        taken.append(next(going))
        assert model.training and model.layer.training and not model.head.training
        assert torch.is_grad_enabled()
    assert taken + list(going) == whole  # without dropout all the same
    assert model.training and model.layer.training and not model.head.training


def test_prompts_and_settings_that_make_no_sense_are_refused(model: CharLM) -> None:
    with pytest.raises(UsageError, match="the prompt is empty"):
        model.generate("", 5)
    with pytest.raises(DataError, match="the prompt has the byte 0xff at offset 1"):
        model.generate(b"a\xff", 5)
    with pytest.raises(UsageError, match="max_new"):
        model.generate("a", -1)
    for options in ({"temperature": -1.0}, {"temperature": math.nan}, {"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.1}):
        with pytest.raises(UsageError, match=next(iter(options))):
            model.generate("a", 5, **options)  # type: ignore[arg-type]


def test_tags_are_counted_and_shown() -> None:
    text = '<text xml:space="preserve">[[a]] [[b</text><id>3</id><br/><username>'
    assert tags(text) == {"text": (1, 1), "id": (1, 1), "username": (1, 0), "[[ ]]": (2, 1)}
    table = tag_table(("one", "two"), (text, "</id>"))
    assert ["id", "1/1", "0/1"] in [line.split() for line in table.splitlines()]
    lines = side_by_side(("one", "two"), ("a b\nc", "x"), width=41).splitlines()
    assert [line.split("|")[-1].strip() for line in lines[2:]] == ["x", ""]


@pytest.mark.parametrize("unit", ["tanh", "gru", "lstm"])
@pytest.mark.parametrize("wiring", ["stacked", "feedback", "gated"])
@pytest.mark.parametrize(("gates_see", "skip", "output"), [("all", True, "all"), ("own", False, "last")])
def test_prepared_steps_are_the_layers_steps(unit: str, wiring: str, gates_see: str, skip: bool, output: str) -> None:
    torch.manual_seed(0)
    options = {"wiring": wiring, "gates_see": gates_see, "input_skip": skip, "output": output}
    layer = CharLM(unit, hidden_size=5, num_layers=3, **options).layer.double()
    prepared, state, expected = generate.stepper(layer), layer.initial_state(2), layer.initial_state(2)
    layer.backend = "reference"
    for symbols in torch.tensor([[3, 204], [0, 7], [7, 7]]):
        features, state = prepared(symbols, state)
        wanted, expected = layer.step(symbols, expected)
        torch.testing.assert_close((features, state), (wanted, expected), rtol=0, atol=1e-14)


def test_a_backend_asked_for_by_name_takes_the_steps() -> None:
    layer = CharLM(hidden_size=5, backend="reference").layer
    assert generate.stepper(layer) == layer.step


@pytest.mark.parametrize("unit", ["lstm", "gru", "tanh"])
def test_steps_under_autocast_round_factors_and_nothing_else(unit: str) -> None:
    torch.manual_seed(5)
    layer = CharLM(unit, hidden_size=40, num_layers=2).layer
    symbols = torch.tensor([[3, 7]])
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        first, state = stepper(layer)(symbols[0], layer.initial_state(2))
        again, _ = stepper(layer)(symbols[0], state)
        layer.backend = "reference"
        truth, state = layer.step(symbols[0], layer.initial_state(2))
        truth_again, _ = layer.step(symbols[0], state)
    assert first.dtype == torch.float32
    torch.testing.assert_close(first, truth, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(again, truth_again, rtol=1e-3, atol=1e-4)  # a factor may fall to the other side
