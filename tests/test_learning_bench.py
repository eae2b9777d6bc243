"""The race of models that learn: equal size, honest scores, resumable."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gfrnn.bench.learning import race as racing
from gfrnn.bench.learning.contenders import CONTENDERS, Contender, rounding, unless_named
from gfrnn.bench.learning.min_gru import MinGRU
from gfrnn.bench.learning.output import NUMBERS, TABLE, as_markdown, race_all
from gfrnn.bench.learning.race import Race, batches, bits_per_character
from gfrnn.bench.learning.torch_lstm import TorchLSTM
from gfrnn.bench.learning.transformer import Transformer
from gfrnn.bench.plan import LEARNERS
from gfrnn.cli import main
from gfrnn.errors import UsageError
from gfrnn.models.char_lm import CharLM
from gfrnn.models.precision import precisely
from gfrnn.models.vocabulary import Vocabulary
from gfrnn.progress import Progress
from gfrnn.tasks.text.corpus import Corpus, excerpt

SMALL = (
    Contender("gf-lstm", "ours", lambda: CharLM("lstm", 6, 2), rows=3, length=9),
    Contender("lstm", "torch's", lambda: TorchLSTM(205, 6, 2), rows=3, length=9),
    Contender("mingru", "minGRU", lambda: MinGRU(205, 6, 2), rows=3, length=9),
    Contender("transformer", "a transformer", lambda: Transformer(205, 8, 2, 16, 2), rows=2, length=16, context=16),
)
TINY = Race(
    minutes=0.002, search_minutes=0.001, rates=(1e-3, 3e-3), points=2, curve_characters=90, final_characters=200
)
TEXT = Corpus("a text", excerpt().bytes[:8_000])
small = pytest.mark.parametrize("contender", SMALL, ids=lambda contender: contender.name)


def symbols(part: np.ndarray) -> np.ndarray:
    return Vocabulary().encode(part)


def test_all_are_equally_large() -> None:
    assert tuple(contender.name for contender in CONTENDERS) == LEARNERS
    for contender in CONTENDERS:
        count = sum(parameter.numel() for parameter in contender.build().parameters())
        assert count == pytest.approx(1_301_259, rel=0.025), contender.name


@small
def test_nothing_sees_what_it_predicts(contender: Contender) -> None:
    torch.manual_seed(1)
    model, ids = contender.build(), torch.randint(205, (10, 2))
    whole, _ = model.nats(ids[:-1], ids[1:])  # type: ignore[operator]
    changed = ids.clone()
    changed[6] = (changed[6] + 1) % 205
    other, _ = model.nats(changed[:-1], changed[1:])  # type: ignore[operator]
    assert torch.equal(whole[:5], other[:5])
    assert not torch.equal(whole[6:], other[6:])  # but what comes later has read it


@pytest.mark.parametrize("contender", SMALL[:3], ids=lambda contender: contender.name)
@pytest.mark.parametrize("streams", [1, 3])
def test_scores_of_carried_state_are_those_of_one_pass(
    contender: Contender, streams: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(racing, "WARM", 40)
    monkeypatch.setattr(racing, "CHUNK", 30)
    monkeypatch.setattr(racing, "STREAMS", streams)
    torch.manual_seed(2)
    model, ids = contender.build(), symbols(TEXT.bytes[:501])
    line = torch.from_numpy(ids.astype(np.int64))[:, None]
    with torch.no_grad():
        nats, _ = model.nats(line[:-1], line[1:])  # type: ignore[operator]
    expected = float(nats.double().mean()) / math.log(2)
    tolerance = 1e-6 if streams == 1 else 1e-3  # the start of a stream is forgotten after the warm-up, nearly
    assert bits_per_character(model, contender, ids) == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize("count", [9, 17, 60])
def test_windows_score_every_symbol_once_with_half_a_context_at_least(count: int) -> None:
    class Positions(nn.Module):
        """Its cost is the number it is asked to predict; it notes how far back it could look."""

        def nats(self, ids: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, None]:
            return targets.float(), None

    contender = Contender("x", "x", Positions, context=16)
    ids = np.arange(count, dtype=np.uint8)
    total = bits_per_character(Positions(), contender, ids) * math.log(2) * (count - 1)
    assert total == pytest.approx(sum(range(1, count)))


def test_rows_read_on_where_they_stopped() -> None:
    text = np.arange(100, dtype=np.uint8)
    source = batches(text, 4, 5, seed=3)
    first, second = next(source), next(source)
    assert first.shape == (6, 4)
    assert torch.equal(first[-1], second[0])
    assert torch.equal((first[0] - first[0, 0]) % 100, torch.tensor([0, 25, 50, 75]))


def test_a_race_is_run_kept_and_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(racing, "BEYOND", 0)
    results = race_all(SMALL, TEXT, symbols, TINY, 1, tmp_path, Progress)
    for contender in SMALL:
        found = results["contenders"][contender.name]
        assert [trial["learning_rate"] for trial in found["search"]] == [1e-3, 3e-3]
        assert found["learning_rate"] in (1e-3, 3e-3) and 4 < found["bpc"] < 9
        assert found["characters"] == found["updates"] * contender.rows * contender.length > 0
        points = [point["point"] for point in found["curve"]]
        assert points in ([2], [1, 2]) and found["curve"][-1]["minutes"] >= TINY.minutes
    assert json.loads((tmp_path / NUMBERS).read_text())["contenders"] == results["contenders"]
    table = (tmp_path / TABLE).read_text()
    assert table == as_markdown(results)
    assert "the first 200 characters" in table and "the first 90 characters" in table
    longer = {**results, "race": {**results["race"], "final_characters": 10_000}, "valid_characters": 400}
    assert "the first 400 characters" in as_markdown(longer)
    skipped = {**results["contenders"]["lstm"], "curve": [{"point": 2, "minutes": 1.0, "characters": 5, "bpc": 3.0}]}
    assert "| lstm |  | 3.000 |" in as_markdown({**results, "contenders": {"lstm": skipped}})
    assert "8 to 16 characters" in table and table.count("everything: state carried on") == 3

    del results["contenders"]["mingru"]["bpc"], results["contenders"]["lstm"]
    results["contenders"]["gf-lstm"]["bpc"] = 1.5
    (tmp_path / NUMBERS).write_text(json.dumps(results))
    trained: list[tuple[str, float]] = []
    learn = racing.learn

    def counted(contender: Contender, *rest: Any) -> dict[str, Any]:
        trained.append((contender.name, rest[3]))
        return learn(contender, *rest)

    monkeypatch.setattr(racing, "learn", counted)
    again = race_all(SMALL, TEXT, symbols, TINY, 1, tmp_path, Progress)
    assert trained == [("lstm", 0.001), ("lstm", 0.001), ("lstm", 0.002), ("mingru", 0.002)]
    assert again["contenders"]["gf-lstm"]["bpc"] == 1.5
    with pytest.raises(UsageError, match="is of another race \\(its threads differs\\)"):
        race_all(SMALL, TEXT, symbols, TINY, 2, tmp_path, Progress)


@pytest.mark.parametrize(
    ("best", "tried"),
    [
        (0.0012, [1e-3, 3e-3, 1e-3 / 3]),
        (0.02, [1e-3, 3e-3, 9e-3, 0.027, 0.081]),
        (1e-4, [1e-3, 3e-3, 1e-3 / 3, 1e-3 / 9, 1e-3 / 27]),
        (9.0, [1e-3, 3e-3, 9e-3, 0.027, 0.081]),  # never found: it ends all the same
    ],
)
def test_the_search_goes_on_past_its_ends(best: float, tried: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    learnt: list[float] = []

    def learn(contender: Contender, texts: Any, race: Race, rate: float, minutes: float, *rest: Any) -> dict[str, Any]:
        learnt.append(rate)
        return {"learning_rate": rate, "bpc": abs(math.log(rate / best)), "characters": 1, "curve": []}

    monkeypatch.setattr(racing, "learn", learn)
    texts = (symbols(TEXT.split("train")), symbols(TEXT.split("valid")))
    result = racing.run(SMALL[0], texts, TINY, Progress)
    assert learnt[:-1] == pytest.approx(tried, rel=1e-4)
    assert learnt[-1] == pytest.approx(min(tried, key=lambda rate: abs(math.log(rate / best))), rel=1e-4)
    assert result["learning_rate"] == learnt[-1]
    again = racing.run(SMALL[0], texts, TINY, Progress, {**result, "learning_rate": 1.0})
    assert again["learning_rate"] == learnt[-1]  # a run at another rate than the best is none
    assert len(learnt) == len(tried) + 2


def test_processes_share_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one, begun at the same time, is done with its contender while this one learns."""
    learn, at_the_same_time = racing.learn, [SMALL[0]]

    def with_company(*given: Any) -> dict[str, Any]:
        if at_the_same_time:
            race_all([at_the_same_time.pop()], TEXT, symbols, TINY, 1, tmp_path, Progress)
        return learn(*given)

    monkeypatch.setattr(racing, "learn", with_company)
    results = race_all([SMALL[1]], TEXT, symbols, TINY, 1, tmp_path, Progress)
    kept = json.loads((tmp_path / NUMBERS).read_text())["contenders"]
    assert sorted(kept) == ["gf-lstm", "lstm"] and kept == results["contenders"]
    assert "ours" in (tmp_path / TABLE).read_text()


def test_who_rounds_learns_under_autocast_and_is_scored_without(tmp_path: Path) -> None:
    seen = set()

    class Noting(TorchLSTM):
        def nats(self, *given: Any) -> Any:
            seen.add((self.training, torch.is_autocast_enabled("cpu")))
            return super().nats(*given)

    noting = Contender("noting", "noting", lambda: Noting(205, 4, 1), rows=2, length=4)
    race_all([noting], TEXT, symbols, TINY, 1, None, Progress)
    assert seen == {(True, False), (False, False)}
    seen.clear()
    results = race_all([rounding(noting)], TEXT, symbols, TINY, 1, None, Progress)
    assert seen == {(True, True), (False, False)}
    assert results["contenders"]["noting-bfloat16"]["precision"] == "bfloat16"


def test_who_cannot_learn_here_is_left_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Broken(TorchLSTM):
        def nats(self, *given: Any) -> Any:
            raise RuntimeError("could not create a primitive")

    broken = rounding(Contender("lstm", "torch's", lambda: Broken(205, 4, 1), rows=2, length=4))
    worse = rounding(Contender("mingru", "minGRU", lambda: Broken(205, 4, 1), rows=2, length=4))
    monkeypatch.setattr("gfrnn.bench.learning.contenders.CONTENDERS", (SMALL[0], broken, SMALL[2], worse))
    monkeypatch.setattr("gfrnn.bench.learning.contenders.resolve", lambda asked: "bfloat16")
    (tmp_path / "text").write_bytes(TEXT.bytes.tobytes())
    words = ["bench", "--learning", "--data", str(tmp_path / "text"), "--minutes", "0.001", "--quiet", "--json"]
    threads = torch.get_num_threads()
    assert main([*words, "--threads", "1"]) == 0
    torch.set_num_threads(threads)
    out, err = capsys.readouterr()
    assert list(json.loads(out)["contenders"]) == ["gf-lstm", "mingru"]
    assert "lstm-bfloat16 is left out: could not create a primitive\n" in err
    assert "mingru-bfloat16 is left out: could not create a primitive; mingru takes part instead\n" in err
    assert main([*words, "--models", "lstm-bfloat16"]) == 2
    assert "--models lstm-bfloat16: could not create a primitive" in capsys.readouterr().err


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_each_takes_part_once_in_what_is_fast_here(monkeypatch: pytest.MonkeyPatch, precision: str) -> None:
    monkeypatch.setattr("gfrnn.bench.learning.contenders.resolve", lambda asked: precision)
    families = ["gf-lstm", "lstm", "mingru", "transformer"]
    assert [contender.precision for contender in unless_named()] == [precision] * 4
    assert [contender.name.removesuffix("-bfloat16") for contender in unless_named()] == families


@small
def test_everybody_learns_in_bfloat16(contender: Contender) -> None:
    """Sums over time and costs are in float32 all the same, and what is learnt goes the same way."""
    torch.manual_seed(1)
    model, ids = contender.build(), torch.randint(205, (10, 2))
    gradients = []
    for precision in ("float32", "bfloat16"):
        with precisely(precision, model):
            nats, _ = model.nats(ids[:-1], ids[1:])  # type: ignore[operator]
        assert nats.dtype == torch.float32
        model.zero_grad()
        nats.mean().backward()
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    plain, rounded = gradients
    assert 0 < (plain - rounded).norm() < 0.03 * plain.norm()


def test_minutes_are_the_processors_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program on the core, here a sleep, takes nothing from anybody's minutes."""

    class Sleepy(TorchLSTM):
        def nats(self, *given: Any) -> Any:
            time.sleep(0.004)
            return super().nats(*given)

    threads, updates = torch.get_num_threads(), []
    sleepy = Contender("sleepy", "sleepy", lambda: Sleepy(205, 2, 1), rows=2, length=4)
    texts = (symbols(TEXT.split("train")), symbols(TEXT.split("valid")))
    for count in (1, 2):
        torch.set_num_threads(count)
        updates.append(racing.learn(sleepy, texts, TINY, 1e-3, 0.002, 1, lambda done: None)["updates"])
    torch.set_num_threads(threads)
    assert updates[0] > 2 * updates[1]


def test_a_contender_that_diverges_is_said_to(tmp_path: Path) -> None:
    class Lost(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def nats(self, ids: torch.Tensor, targets: torch.Tensor, state: Any = None) -> tuple[torch.Tensor, None]:
            return self.weight * torch.full(ids.shape, math.nan), None

    lost = Contender("lost", "lost", Lost, rows=2, length=4)
    results = race_all([lost], TEXT, symbols, TINY, 1, tmp_path, Progress)
    assert results["contenders"]["lost"]["bpc"] is None
    assert "| diverged |" in (tmp_path / TABLE).read_text()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gfrnn.bench.learning.contenders.CONTENDERS", SMALL)
    (tmp_path / "text").write_bytes(TEXT.bytes.tobytes())
    words = ["bench", "--learning", "--data", str(tmp_path / "text"), "--minutes", "0.001", "--quiet", "--threads", "1"]
    threads = torch.get_num_threads()
    assert main([*words, "--models", "lstm", "mingru", "--out", str(tmp_path / "out"), "--json"]) == 0
    torch.set_num_threads(threads)
    results = json.loads(capsys.readouterr().out)
    assert sorted(results["contenders"]) == ["lstm", "mingru"]
    assert results["race"]["search_minutes"] == pytest.approx(1e-4)
    assert (tmp_path / "out" / TABLE).exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--learning", "--quick"), "--learning is a bench of its own"),
        (("--minutes", "3"), "--minutes is for the models that learn: add --learning"),
        (("--learning", "--minutes", "0"), "--minutes must be above 0, got 0"),
        (("--learning", "--models", "lstn"), "did you mean 'lstm'"),
    ],
)
def test_what_makes_no_sense_is_refused(
    words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *words]) == 2
    assert sentence in capsys.readouterr().err
