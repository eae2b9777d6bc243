"""Many warmed streams give the number of one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gfrnn.models import CharLM
from gfrnn.tasks.text.corpus import excerpt
from gfrnn.tasks.text.score import score_text

TEXT = excerpt().bytes[:30_000].tobytes()


@pytest.fixture(scope="module")
def model() -> CharLM:
    """One that remembers long: forget gates near 0.95, and a softmax that listens."""
    torch.manual_seed(5)
    model = CharLM(hidden_size=10, num_layers=2, forget_bias=3.0, input_std=1.0)
    torch.nn.init.normal_(model.head.weight, std=0.5)
    return model.eval()


@pytest.fixture(scope="module")
def one_stream(model: CharLM) -> np.ndarray:
    return model.score(TEXT)


@pytest.mark.parametrize("streams", [2, 7, 16])
def test_parallel_streams_equal_one(streams: int, model: CharLM, one_stream: np.ndarray) -> None:
    ids = model.vocabulary.encode(TEXT)
    score = score_text(model, ids, streams=streams)
    assert score.characters == len(TEXT)
    assert score.bpc == pytest.approx(one_stream.mean(), abs=1e-3)
    cold = score_text(model, ids, streams=streams, warmup=0)
    assert abs(cold.bpc - one_stream.mean()) > 1e-5  # the warm-up is what makes them equal


def test_one_stream_is_the_score(model: CharLM, one_stream: np.ndarray) -> None:
    ids = model.vocabulary.encode(TEXT)
    score = score_text(model, ids, streams=1)
    assert score.bits == pytest.approx(one_stream.sum(), rel=1e-6)
    assert score.nats == pytest.approx(one_stream.mean() * np.log(2), rel=1e-6)


@pytest.mark.parametrize("count", [2, 3, 101, 5003])
def test_the_default_number_of_streams_suits_any_length(count: int, model: CharLM, one_stream: np.ndarray) -> None:
    score = score_text(model, model.vocabulary.encode(TEXT[:count]))
    assert score.characters == count
    assert score.bpc == pytest.approx(one_stream[:count].mean(), abs=1e-3)


def test_it_leaves_the_model_in_training_and_can_be_interrupted(model: CharLM) -> None:
    class Enough(Exception):
        pass

    def tick(fraction: float) -> None:
        raise Enough

    model.train()
    with pytest.raises(Enough):
        score_text(model, model.vocabulary.encode(TEXT), tick=tick)
    assert model.training
    model.eval()
    with pytest.raises(ValueError, match="needs two or more"):
        score_text(model, np.zeros(1, dtype=np.uint8))


@pytest.mark.parametrize("count", [401, 402])
def test_a_stream_warmed_on_everything_before_it_is_exact(count: int, model: CharLM) -> None:
    """Two parts, equal or not, the second warmed on the whole first."""
    text = TEXT[:count]
    score = score_text(model, model.vocabulary.encode(text), streams=2, warmup=count // 2)
    assert score.bits == pytest.approx(model.score(text).sum(), rel=1e-6)
