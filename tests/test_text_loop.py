"""The C++ generation loop writes what the Python loop writes, byte for byte."""

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from gfrnn.errors import UsageError
from gfrnn.models import CharLM, generation
from gfrnn.models.generation import Sampling, drawn, encode_prompt
from gfrnn.models.text_loop import TextLoop, half_rounded
from gfrnn.ops import cpu

pytestmark = pytest.mark.skipif(bool(cpu.why_unavailable()), reason="; ".join(cpu.why_unavailable()))

SAMPLINGS = (
    Sampling(1.0, None, None, 3),
    Sampling(0.8, 10, None, 3),
    Sampling(1.0, None, 0.7, 3),
    Sampling(0.0, None, None, 1),
    Sampling(0.9, 20, 0.8, 5),
)
MODELS = list(itertools.product(("tanh", "gru", "lstm"), ("gated", "feedback", "stacked"), ("all", "own")))


LENGTH, PIECE = 60, 25  # characters: more than one piece of the loop, and the last is shorter


@pytest.fixture(autouse=True)
def _pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "LOOP_CHUNK", PIECE)


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def make(unit: str, wiring: str, gates_see: str = "all", layers: int = 3, **options: object) -> CharLM:
    torch.manual_seed(0)
    model = CharLM(unit, hidden_size=37, num_layers=layers, wiring=wiring, gates_see=gates_see, **options)
    with torch.no_grad():  # lively, but not chaotic: rounding must not grow from step to step
        for parameter in model.parameters():
            parameter.normal_(std=0.1)
    return model


def write(model: CharLM, backend: str, sampling: Sampling, half: bool = False) -> bytes:
    model.layer.backend = backend
    settings = (sampling.temperature, sampling.top_k, sampling.top_p, sampling.seed)
    return model.generate(b"hello", LENGTH, *settings, half=half)


@pytest.mark.parametrize(("unit", "wiring", "gates_see"), MODELS)
def test_it_writes_what_python_writes(unit: str, wiring: str, gates_see: str) -> None:
    models = itertools.cycle([(True, "all", 3), (False, "last", 2), (True, "last", 1)])
    meetings = list(zip(SAMPLINGS, models, strict=False))
    for sampling, (skip, output, layers) in meetings[MODELS.index((unit, wiring, gates_see)) % 2 :: 2]:
        model = make(unit, wiring, gates_see, layers, input_skip=skip, output=output)
        assert write(model, "cpu", sampling) == write(model, "manual", sampling)


@pytest.mark.parametrize(
    ("unit", "wiring", "normalise"),
    [("bounded-lstm", "gated", False), ("gru", "stacked", True), ("gru", "gated", True), ("lstm", "feedback", True)],
)
def test_what_the_paper_has_not_is_written_too(unit: str, wiring: str, normalise: bool) -> None:
    model = make(unit, wiring, normalise=normalise)
    assert not TextLoop.why_not(model.layer, model.head)
    text = write(model, "cpu", SAMPLINGS[0])
    assert text == write(model, "reference", SAMPLINGS[0])
    if normalise:
        with torch.no_grad():
            model.layer.gain_l1.mul_(3.0)
        assert write(model, "cpu", SAMPLINGS[0]) != text


def sample_alone(model: CharLM, sampling: Sampling, number: int, half: bool, in_loop: bool = True) -> bytes:
    """Sample `number` of a seed, without the others."""
    assert sampling.seed is not None
    ids = torch.from_numpy(encode_prompt(model, b"hello").astype(np.int64))
    generator = np.random.default_rng([sampling.seed, number])
    return b"".join(byte for (byte,) in drawn(model, ids, LENGTH, sampling, [generator], half, in_loop))


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(("unit", "wiring", "gates_see"), MODELS)
def test_every_sample_is_the_text_it_would_be_alone(unit: str, wiring: str, gates_see: str, half: bool) -> None:
    model, samples = make(unit, wiring, gates_see), 8  # two or more times the rows of a tile, and some
    for sampling in SAMPLINGS[MODELS.index((unit, wiring, gates_see)) % 2 :: 2]:
        settings = (sampling.temperature, sampling.top_k, sampling.top_p, sampling.seed)
        texts = model.generate(b"hello", LENGTH, *settings, samples=samples, half=half)
        assert texts == [sample_alone(model, sampling, number, half) for number in range(samples)]
        assert len(set(texts)) == (samples if sampling.temperature else 1)


@pytest.mark.parametrize("half", [False, True])
def test_samples_are_the_same_bits_as_alone(half: bool) -> None:
    """Texts hide the last bits; states do not. Odd sizes, so that every panel and tile has a rest."""
    model = make("lstm", "gated")
    loop, texts = TextLoop(model.layer, model.head, half), 11
    logits = torch.randn(texts, 205, generator=torch.Generator().manual_seed(2))
    uniform = torch.rand(texts, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    symbols, after, (h, c) = loop.run(logits, model.layer.initial_state(texts), uniform, 1.0, None, None)
    for i in range(texts):
        row = slice(i, i + 1)
        one = loop.run(logits[row], model.layer.initial_state(1), uniform[row], 1.0, None, None)
        assert torch.equal(one[0], symbols[row]) and torch.equal(one[1], after[row])
        assert torch.equal(one[2][0], h[:, row]) and torch.equal(one[2][1], c[:, row])


@pytest.mark.parametrize("unit", ["tanh", "gru", "lstm"])
def test_half_is_the_model_with_rounded_matrices(unit: str) -> None:
    model = make(unit, "gated")
    twin = model.as_half()
    assert not torch.equal(twin.head.weight, model.head.weight)
    assert torch.equal(twin.head.weight, model.head.weight.half().float())
    assert torch.equal(twin.head.bias, model.head.bias)
    for sampling in SAMPLINGS[::2]:
        assert write(model, "cpu", sampling, half=True) == write(twin, "manual", sampling)


def test_half_keeps_the_smallest_and_the_largest() -> None:
    edge = torch.tensor([[6.0e-8, 6.1e-5, -1.0, 65504.0, -0.0, 3.1e-8]])
    assert torch.equal(half_rounded(edge), edge.half().float())
    model = make("lstm", "gated")
    with torch.no_grad():  # subnormal halves everywhere
        model.layer.weight_hh_l0.mul_(1e-4)
        model.layer.weight_hh_l1.mul_(1e-5)
    assert write(model, "cpu", SAMPLINGS[0], half=True) == write(model.as_half(), "manual", SAMPLINGS[0])


@pytest.mark.parametrize("texts", [1, 2, 7])
@pytest.mark.parametrize("half", [False, True])
def test_threads_do_not_change_a_bit(half: bool, texts: int, threads: None) -> None:
    model = CharLM("lstm", hidden_size=140)  # large enough for more than one thread
    uniform = torch.rand(texts, 60, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = []
    for number in (1, 2, 3):
        torch.set_num_threads(number)
        loop = TextLoop(model.layer, model.head, half)
        with torch.no_grad():
            found.append(loop.run(torch.zeros(texts, 205), model.layer.initial_state(texts), uniform, 1.0, None, None))
    for symbols, logits, (h, c) in found[1:]:
        for mine, first in zip((symbols, logits, h, c), (*found[0][:2], *found[0][2]), strict=True):
            assert torch.equal(mine, first)


def test_the_loop_leaves_its_input_alone() -> None:
    model = make("lstm", "gated")
    state, logits = model.layer.initial_state(2), torch.zeros(2, 205)
    with torch.no_grad():
        loop = TextLoop(model.layer, model.head)
        _, after, new = loop.run(logits, state, torch.rand(2, 5, dtype=torch.float64), 1.0, None, None)
    assert not state[0].any() and not state[1].any() and not logits.any()
    assert new[0].any() and after.any()


def test_half_says_when_it_cannot() -> None:
    model = make("lstm", "gated").double()
    with pytest.raises(UsageError, match=r"half: .*float32"):
        model.generate("a", 3, half=True)
    other = make("lstm", "gated")
    other.layer.backend = "reference"
    with pytest.raises(UsageError, match=r"half: .*'reference'"):
        other.generate("a", 3, half=True)


def train_fused(model: CharLM) -> None:
    """One step of an optimizer that changes weights without telling their version counters."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.3, fused=True)
    ids = torch.arange(40).view(20, 2)
    model.loss(ids[:-1], ids[1:])[0].backward()
    optimizer.step()
    optimizer.zero_grad()


def add_in_place(model: CharLM) -> None:
    with torch.no_grad():
        model.layer.bias_l1.add_(1.0)


def add_to_the_data(model: CharLM) -> None:
    model.layer.bias_l1.data.add_(1.0)


def add_through_numpy(model: CharLM) -> None:
    model.layer.bias_l1.detach().numpy()[:] += 1.0


def replace_the_head(model: CharLM) -> None:
    model.head.bias = torch.nn.Parameter(torch.linspace(-3, 3, 205))


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(
    "change",
    [train_fused, add_in_place, add_to_the_data, add_through_numpy, replace_the_head],
    ids=lambda f: f.__name__,
)
def test_text_is_written_with_the_weights_of_the_moment(change: Callable[[CharLM], None], half: bool) -> None:
    model = make("lstm", "gated")
    before = write(model, "cpu", SAMPLINGS[0], half=half)
    change(model)
    after = write(model, "cpu", SAMPLINGS[0], half=half)
    assert after == write(model.as_half() if half else model, "manual", SAMPLINGS[0]) != before
