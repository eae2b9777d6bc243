"""Dynamic evaluation: what it computes, against a loop by hand; what it leaves alone; how values are chosen."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from runs import files, run_tiny

from gfrnn.cli import main
from gfrnn.errors import DataError, NonFinite, UsageError
from gfrnn.models import CharLM
from gfrnn.models.pretrained import find
from gfrnn.storage.run_folder import DYNAMIC, blocks_name
from gfrnn.tasks.text import blocks, dynamic, dynamic_choice
from gfrnn.tasks.text.corpus import excerpt
from gfrnn.tasks.text.dynamic import Settings, mean_squares, score_dynamically, stretches
from gfrnn.tasks.text.score import score_text

TEXT = excerpt().bytes[:1_234]
Capture = pytest.CaptureFixture[str]


@pytest.fixture(params=["lstm", "gru"])
def model(request: pytest.FixtureRequest) -> CharLM:
    torch.manual_seed(3)
    return CharLM(request.param, 6, 2).eval()


def by_hand(model: CharLM, text: np.ndarray, settings: Settings, squares: dict[str, Any] | None) -> list[float]:
    """Bits of every byte: through logits and autograd, the rule written out weight by weight."""
    twin = copy.deepcopy(model)
    twin.layer.backend = "reference"
    trained = {name: p.detach().clone() for name, p in twin.named_parameters()}
    ids = torch.from_numpy(model.vocabulary.encode(text).astype(np.int64))
    nats = [float(-torch.log_softmax(twin.head.bias.detach(), 0)[ids[0]])]
    state = None
    for start in range(0, len(ids) - 1, settings.block):
        window = ids[start : start + settings.block + 1]
        logits, state = twin(window[:-1, None], state)
        state = tuple(s.detach() for s in state) if isinstance(state, tuple) else state.detach()
        costs = -torch.log_softmax(logits.flatten(0, 1), 1)[range(len(window) - 1), window[1:]]
        nats += costs.tolist()
        twin.zero_grad()
        costs.mean().backward()
        everywhere = None if squares is None else torch.cat([s.sqrt().flatten() for s in squares.values()]).mean()
        for name, p in twin.named_parameters():
            new = p.detach() - settings.learning_rate * p.grad + settings.decay * (trained[name] - p.detach())
            if squares is not None:
                root = squares[name].sqrt()
                pull = torch.minimum(torch.ones(()), settings.decay * root / everywhere)
                step = settings.learning_rate * p.grad / (root + dynamic.EPSILON * everywhere)
                new = p.detach() - step + pull * (trained[name] - p.detach())
            p.data = new
    return [nat / math.log(2) for nat in nats]


def squares_by_hand(model: CharLM, texts: list[np.ndarray], block: int) -> dict[str, Any]:
    twin = copy.deepcopy(model)
    twin.layer.backend = "reference"
    sums, count = {name: torch.zeros_like(p) for name, p in twin.named_parameters()}, 0
    for text in texts:
        ids, state = torch.from_numpy(model.vocabulary.encode(text).astype(np.int64)), None
        for start in range(0, len(ids) - 1, block):
            window = ids[start : start + block + 1, None]
            twin.zero_grad()
            logits, state = twin(window[:-1], state)
            state = tuple(s.detach() for s in state) if isinstance(state, tuple) else state.detach()
            torch.nn.functional.cross_entropy(logits.flatten(0, 1), window[1:].flatten()).backward()
            for name, p in twin.named_parameters():
                sums[name] += p.grad**2
            count += 1
    return {name: total / count for name, total in sums.items()}


@pytest.mark.parametrize("settings", [Settings("sgd", 0.5, 50, 0.02), Settings("rms", 3e-3, 41, 0.05)], ids=str)
def test_it_is_the_loop_written_by_hand(settings: Settings, model: CharLM) -> None:
    text = TEXT[:330]
    before = copy.deepcopy(model.state_dict())
    texts = [TEXT[:200], TEXT[200:330]]
    expected_squares = squares_by_hand(model, texts, settings.block) if settings.rule == "rms" else None
    squares = None
    if expected_squares is not None:
        squares = mean_squares(model, [model.vocabulary.encode(text) for text in texts], settings.block)
        for found, expected in zip(squares, expected_squares.values(), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-12)
    score = score_dynamically(model, model.vocabulary.encode(text), settings, squares)
    static = score_text(model, model.vocabulary.encode(text), streams=1, warmup=0)
    gain = static.bits - sum(by_hand(model, text, settings, expected_squares))
    assert gain > 2.0  # fresh weights have everything to learn
    assert static.bits - score.bits == pytest.approx(gain, rel=1e-4)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_without_a_learning_rate_it_is_the_static_score(model: CharLM) -> None:
    ids = model.vocabulary.encode(TEXT)
    static = score_text(model, ids, streams=1, warmup=0)
    found = score_dynamically(model, ids, Settings("sgd", 0.0, 33, 0.5))
    assert found.blocks == pytest.approx(static.blocks, rel=1e-6)
    assert found.characters == static.characters == len(TEXT)


def test_without_the_op_it_is_the_same_but_for_rounding(model: CharLM) -> None:
    ids, settings = model.vocabulary.encode(TEXT[:400]), Settings("sgd", 0.5, 50)
    fast = score_dynamically(model, ids, settings)
    model.layer.backend = "manual"
    assert score_dynamically(model, ids, settings).bits == pytest.approx(fast.bits, rel=1e-6)


def test_it_repeats_to_the_bit_and_reports_its_progress(model: CharLM) -> None:
    ids, settings = model.vocabulary.encode(TEXT), Settings("sgd", 0.3, 20, 0.001)
    seen: list[float] = []
    one = score_dynamically(model, ids, settings, tick=seen.append)
    two = score_dynamically(model, ids, settings)
    assert one.blocks.tobytes() == two.blocks.tobytes()
    assert seen == sorted(seen) and len(seen) == 62 and seen[-1] == 1.0


def test_learning_starts_behind_the_first_block(model: CharLM) -> None:
    """What a block costs depends on the blocks before it, not on itself: no number is taken after its own step."""
    ids = model.vocabulary.encode(TEXT[:101])
    static, found = (
        score_text(model, ids, streams=1, warmup=0),
        score_dynamically(model, ids, Settings("sgd", 10.0, 100)),
    )
    assert found.bits == pytest.approx(static.bits, rel=1e-6)


def test_what_comes_later_changes_nothing_before(model: CharLM) -> None:
    first, other = TEXT[:1_001], TEXT[1_001:]
    scores = [
        score_dynamically(model, model.vocabulary.encode(np.concatenate([first, tail])), Settings("sgd", 0.5, 20))
        for tail in (other, other[::-1])
    ]
    assert scores[0].blocks[0] == scores[1].blocks[0] and scores[0].blocks[1] != scores[1].blocks[1]


def test_losing_the_way_is_said_and_the_weights_come_back(model: CharLM) -> None:
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(NonFinite, match=r"lost its way after [0-9,]+ characters: a smaller learning rate than 1e\+38"):
        score_dynamically(model, model.vocabulary.encode(TEXT), Settings("sgd", 1e38, 20))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (("adam", 0.1, 50), "is sgd or rms, not 'adam'"),
        (("sgd", -1.0, 50), "learning rate of dynamic evaluation must be 0 or more, got -1.0"),
        (("sgd", math.nan, 50), "must be 0 or more, got nan"),
        (("sgd", 0.1, 0), "1 character or more, got 0"),
        (("sgd", 0.1, 50, 1.5), "between 0 and 1, got 1.5"),
    ],
)
def test_settings_that_make_no_sense(values: tuple[Any, ...], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        Settings(*values)


def test_stretches_lie_in_the_text_and_hold_whole_blocks() -> None:
    for size, block, characters in ((1_000_000, 50, 100_000), (18_000, 50, 50_000), (120, 50, 50_000)):
        places = stretches(size, block, characters)
        assert len(places) == dynamic.PLACES
        assert all(p.start >= 0 and p.stop <= size and (p.stop - p.start - 1) % block == 0 for p in places)
    with pytest.raises(UsageError, match="40 characters are too few"):
        stretches(40, 50, 1000)


def test_float64_weights_and_missing_gradients_are_refused(model: CharLM) -> None:
    ids = model.vocabulary.encode(TEXT)
    with pytest.raises(ValueError, match="needs mean squared gradients"):
        score_dynamically(model, ids, Settings("rms", 0.1, 20))
    with pytest.raises(ValueError, match="float32"):
        score_dynamically(copy.deepcopy(model).double(), ids, Settings("sgd", 0.1, 20))


def test_the_search_goes_option_by_option_and_tries_nothing_twice() -> None:
    asked: list[Settings] = []

    def cost(settings: Settings) -> float:
        asked.append(settings)
        if settings.learning_rate == 0.4:
            raise NonFinite("lost")
        best = {"learning_rate": 0.1, "decay": 0.001, "block": 25}
        return 2.0 - sum(getattr(settings, name) == value for name, value in best.items())

    tried = dynamic_choice.search(cost, {"rule": "sgd"})
    assert len(asked) == len(set(asked)) == len(tried) == 8
    assert [trial["bpc"] for trial in tried].count(None) == 1
    choice = dynamic_choice.Choice("t", "m", 10, 2.0, tried)
    assert choice.settings == Settings("sgd", 0.1, 25, 0.001) and choice.best["bpc"] == -1.0
    found = dynamic_choice.search(lambda s: abs(s.learning_rate - 7e-3) + s.block / 1e6 + abs(s.decay - 0.005), {})
    assert [trial["learning_rate"] for trial in found[:5]] == [5e-4, 1e-3, 2e-3, 4e-3, 8e-3]
    assert found[5]["learning_rate"] == 0.016  # worse: the best lies between two that were tried
    assert min(found, key=lambda trial: trial["bpc"]) == {
        **found[5],
        "learning_rate": 8e-3,
        "decay": 0.006,
        "block": 25,
        "bpc": pytest.approx(0.002025),
    }
    everything = {"rule": "sgd", "learning_rate": 0.2, "block": 7, "decay": 0.0}
    assert [trial["block"] for trial in dynamic_choice.search(cost, everything)] == [7]
    assert {trial["rule"] for trial in dynamic_choice.search(cost, {"block": 50})} == {"rms"}
    with pytest.raises(DataError, match="kept its way"):
        _ = dynamic_choice.Choice("t", "m", 10, 2.0, [{**tried[0], "bpc": None}]).best


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dynamic")
    run_tiny(folder, dropout=0.0)
    return folder / "run"


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    shutil.copytree(trained, tmp_path / "run")
    return tmp_path / "run"


def evaluated(capsys: Capture, *words: object) -> dict[str, Any]:
    assert main(["eval", *map(str, words), "--json"]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def refused(capsys: Capture, *words: object) -> str:
    assert main(["eval", *map(str, words)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err


def test_choose_on_valid_then_score_test(run: Path, capsys: Capture) -> None:
    evaluated(capsys, run)  # which keeps the code lengths
    static = evaluated(capsys, run, "--precision", "float32")  # as dynamic evaluation is, whatever the training was
    sentence = refused(capsys, run, "--dynamic")
    assert f"keeps no values for dynamic evaluation: `gfrnn eval {run} --dynamic --choose`" in sentence
    before = files(run)
    chosen = evaluated(capsys, run, "--dynamic", "--choose", "--limit", 400, "--block", 50)
    assert (chosen["split"], chosen["characters"], chosen["kept"]) == ("valid", 400, str(run / DYNAMIC))
    assert {trial["block"] for trial in chosen["tried"]} == {50} and len(chosen["tried"]) >= 5
    assert chosen["bpc_dynamic"] == min(trial["bpc"] for trial in chosen["tried"]) < chosen["bpc"]
    assert {name: content for name, content in files(run).items() if name != DYNAMIC} == before

    found = evaluated(capsys, run, "--dynamic")
    assert (found["split"], found["values"]) == ("test", "chosen on 400 validation characters")
    assert [found[name] for name in ("rule", "learning_rate", "block", "decay")] == [
        chosen[name] for name in ("rule", "learning_rate", "block", "decay")
    ]
    assert found["bpc"] == static["bpc"] and found["bpc_dynamic"] < found["bpc"]
    assert found["gain"] == pytest.approx(found["bpc"] - found["bpc_dynamic"])
    after = files(run)
    name = blocks_name("test", dynamic=True)
    assert set(after) - set(before) == {DYNAMIC, name}
    assert all(after[old] == content for old, content in before.items())  # the static blocks and the model among them
    kept = blocks.read(run, "test", dynamic=True)
    assert kept.bpc == pytest.approx(found["bpc_dynamic"], rel=1e-12)
    assert isinstance(kept.origin, blocks.DynamicOrigin) and json.loads(kept.origin.settings)["block"] == 50
    with pytest.raises(DataError, match="scored as it was trained, the other while it went on learning"):
        kept.comparable(blocks.read(run, "test"))
    (run / name).write_bytes(after[name].replace(b"block", b"blick"))
    with pytest.raises(DataError, match="is damaged"):
        blocks.read(run, "test", dynamic=True)
    assert evaluated(capsys, run, "--dynamic")["bpc_dynamic"] == found["bpc_dynamic"]
    again = blocks.read(run, "test", dynamic=True)
    assert again.origin == kept.origin and again.bits.tobytes() == kept.bits.tobytes()


def test_values_chosen_for_other_weights_are_not_used(run: Path, capsys: Capture) -> None:
    evaluated(capsys, run, "--dynamic", "--choose", "--limit", 100, "--rule", "sgd", "--block", 50, "--decay", 0)
    whole = (run / DYNAMIC).read_text()
    last = '"bpc": 1'.join(whole.rsplit('"bpc": ', 1))
    for damage in (whole[:40], "[]", whole.replace('"chosen"', '"chose"'), last):
        (run / DYNAMIC).write_text(damage)
        assert main(["eval", str(run), "--dynamic"]) == 3
        assert f"{run / DYNAMIC} is damaged" in capsys.readouterr().err
    (run / DYNAMIC).write_text(whole)
    model = CharLM.from_pretrained(run)
    with torch.no_grad():
        model.head.bias += 0.01
    model.save_pretrained(run / "best")
    assert "were chosen for other weights" in refused(capsys, run, "--dynamic")


def test_the_packaged_model_keeps_its_values_in_the_cache_folder(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GFRNN_CACHE", str(tmp_path / "cache"))
    words = ("stacked-lstm-enwik8", "--data", "excerpt", "--dynamic")
    assert "stacked-lstm-enwik8 keeps no values" in refused(capsys, *words)
    fixed = ("--rule", "sgd", "--learning-rate", 0.1, "--block", 50, "--decay", 0)
    chosen = evaluated(capsys, *words, "--choose", "--limit", 60, *fixed)
    assert chosen["kept"] == str(tmp_path / "cache" / "dynamic" / "stacked-lstm-enwik8" / DYNAMIC)
    assert len(chosen["tried"]) == 1
    assert evaluated(capsys, *words, "--limit", 60)["learning_rate"] == 0.1
    (tmp_path / "cache").rename(tmp_path / "before")
    (tmp_path / "cache").write_text("no folder")
    assert evaluated(capsys, *words, "--choose", "--limit", 60, *fixed)["kept"] is None


def test_the_packaged_model_brings_its_values(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GFRNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("gfrnn.cli.dynamic.GRADIENTS_FROM", 1_000)
    brought = dynamic_choice.read(find("gf-lstm-enwik8"))
    assert brought is not None
    words = ("--data", "excerpt", "--dynamic", "--split", "valid", "--limit", 60)
    found = evaluated(capsys, *words)
    assert Settings(**{name: found[name] for name in ("rule", "learning_rate", "block", "decay")}) == brought.settings
    mine = tmp_path / "cache" / "dynamic" / "gf-lstm-enwik8"
    other = [{**trial, "learning_rate": 3e-4} for trial in brought.tried]
    dynamic_choice.keep(mine, dataclasses.replace(brought, tried=other))
    assert evaluated(capsys, *words)["learning_rate"] == 3e-4  # what I chose myself goes first,
    dynamic_choice.keep(mine, dataclasses.replace(brought, tried=other, model_sha256="of an older release"))
    assert evaluated(capsys, *words)["learning_rate"] == brought.settings.learning_rate  # if it is of this model


def test_given_values_need_no_choice_and_a_part_is_not_kept(run: Path, capsys: Capture) -> None:
    before = files(run)
    found = evaluated(
        capsys, run, "--dynamic", "--rule", "sgd", "--learning-rate", 0, "--split", "valid", "--limit", 600
    )
    assert (found["split"], found["characters"], found["values"], found["rule"]) == ("valid", 600, "given", "sgd")
    assert found["bpc_dynamic"] == pytest.approx(found["bpc"], abs=1e-3)
    static = evaluated(capsys, run, "--split", "valid", "--limit", 600, "--precision", "float32")
    assert static["bpc"] == found["bpc"]
    assert files(run) == before


def test_weights_of_16_bits_and_a_report_for_people(tmp_path: Path, capsys: Capture) -> None:
    torch.manual_seed(1)
    CharLM("gru", 4, 1).save_pretrained(tmp_path, torch.float16)
    words = ["--data", "excerpt", "--split", "valid", "--limit", "150", "--learning-rate", "0.003", "--quiet"]
    assert main(["eval", str(tmp_path), "--dynamic", *words, "--block", "1000"]) == 0
    out, err = capsys.readouterr()
    assert "the weights are stored as float16: a float32 copy of them learns" in err
    assert "learning rate       0.003\n" in out and "times static" in out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "manifest.json", "model.safetensors"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--choose",), "--choose is for dynamic evaluation: add --dynamic"),
        (("--block", "20"), "--block is for dynamic evaluation"),
        (("--dynamic", "--choose", "--split", "test"), "values are chosen on the validation split, never on another"),
        (("--dynamic", "--decay", "0.1"), "--decay wants --learning-rate with it"),
        (("--dynamic", "--half"), "--half is for the model as it is"),
        (("--dynamic", "--precision", "bfloat16"), "dynamic evaluation is in float32"),
        (("--dynamic", "--learning-rate", "0.1", "--split", "all"), "take --rule sgd"),
        (("--dynamic", "--learning-rate", "-1"), "must be 0 or more"),
        (("--limit", "1"), "--limit must be at least 2"),
    ],
)
def test_what_makes_no_sense_is_refused(words: tuple[str, ...], sentence: str, trained: Path, capsys: Capture) -> None:
    assert main(["eval", str(trained), *words, "--quiet"]) == 2
    assert sentence in capsys.readouterr().err.splitlines()[-1]


def test_a_program_model_is_refused(tmp_path: Path, capsys: Capture) -> None:
    from gfrnn.models import Seq2Seq

    Seq2Seq(hidden_size=4).save_pretrained(tmp_path)
    assert "is a program model" in refused(capsys, tmp_path, "--dynamic", "--learning-rate", "0.1")
