"""The character model: its loss, its score, its files."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from gfrnn.bench.tolerance import allowed, error
from gfrnn.errors import DataError
from gfrnn.models import CharLM
from gfrnn.models.softmax import symbol_nats
from gfrnn.tasks.text.corpus import excerpt

TEXT = excerpt().bytes[5000:5700].tobytes()


def small(**options: object) -> CharLM:
    return CharLM(**{"hidden_size": 7, "num_layers": 2, **options})  # type: ignore[arg-type]


def ids_of(model: CharLM, text: bytes) -> torch.Tensor:
    return torch.from_numpy(model.vocabulary.encode(text).astype(np.int64))


def test_symbol_nats_is_cross_entropy_with_its_gradients() -> None:
    torch.manual_seed(3)
    leaves = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((4, 3, 5), (9, 5), (9,))]
    targets, weights = torch.randint(9, (4, 3)), torch.randn(4, 3, dtype=torch.float64)
    ours = symbol_nats(*leaves, targets)
    logits = torch.nn.functional.linear(*leaves)
    theirs = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(4, 3)
    torch.testing.assert_close(ours, theirs)
    for one, other in zip(
        torch.autograd.grad((ours * weights).sum(), leaves),
        torch.autograd.grad((theirs * weights).sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(one, other)
    assert torch.autograd.gradcheck(lambda x, w, b: symbol_nats(x, w, b, targets), leaves)


def test_symbol_nats_survives_logits_beyond_exp() -> None:
    x = torch.full((1, 1), 1e4, requires_grad=True)
    nats = symbol_nats(x, torch.tensor([[1.0], [-1.0]]), torch.zeros(2), torch.tensor([1]))
    assert nats.item() == 2e4
    nats.sum().backward()
    assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize("backward_inside", [False, True])
@pytest.mark.parametrize("unit", ["gru", "lstm"])
def test_loss_under_autocast(unit: str, backward_inside: bool) -> None:
    """As torch teaches it: the loss inside, the backward (usually) outside; both with products in bfloat16."""
    model, reference = small(unit=unit), small(unit=unit)
    reference.load_state_dict(model.state_dict())
    reference.layer.backend = "reference"
    ids = ids_of(model, TEXT[:60]).view(2, 30).T
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected, _ = reference.loss(ids[:-1], ids[1:])
        loss, _ = model.loss(ids[:-1], ids[1:])
        if backward_inside:
            loss.backward()
            expected.backward()
    if not backward_inside:
        loss.backward()
        expected.backward()
    limit = allowed(torch.float32, products=torch.bfloat16)
    plain, _ = model.loss(ids[:-1], ids[1:])
    assert loss.dtype == torch.float32 and error(loss, expected) <= limit
    assert loss != plain and error(loss, plain) < 0.01
    for found, truth in zip(model.parameters(), reference.parameters(), strict=True):
        assert found.grad.dtype == torch.float32 and found.grad.isfinite().all()
        assert error(found.grad, truth.grad) <= limit


def test_logits_under_autocast_are_those_that_the_loss_is_made_of() -> None:
    model = small()
    ids = ids_of(model, TEXT[:20]).view(2, 10).T
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits, _ = model(ids[:-1])
        nats, _ = model.nats(ids[:-1], ids[1:])
    logits.sum().backward()  # outside, as torch teaches it: inside it would round results as well
    assert logits.dtype == torch.float32 and model.head.weight.grad.isfinite().all()
    torch.testing.assert_close(torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[1:].flatten()), nats.mean())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_cost_of_a_16_bit_model_is_in_float32(dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    leaves = [torch.randn(*shape, dtype=dtype, requires_grad=True) for shape in ((4, 3, 5), (9, 5), (9,))]
    targets = torch.randint(9, (4, 3))
    nats = symbol_nats(*leaves, targets)
    logits = torch.nn.functional.linear(*leaves).float().flatten(0, 1)
    theirs = torch.nn.functional.cross_entropy(logits, targets.flatten(), reduction="none").view(4, 3)
    torch.testing.assert_close(nats, theirs)
    for leaf, one, other in zip(
        leaves, torch.autograd.grad(nats.sum(), leaves), torch.autograd.grad(theirs.sum(), leaves), strict=True
    ):
        assert one.dtype == leaf.dtype == dtype
        torch.testing.assert_close(one, other)


def test_the_default_is_the_papers_gated_lstm() -> None:
    model = CharLM(device="meta")
    assert sum(p.numel() for p in model.parameters()) == 1_301_259
    assert list(model.state_dict())[-2:] == ["head.weight", "head.bias"]
    assert model.head.in_features == 420


@pytest.mark.parametrize("unit", ["tanh", "gru", "lstm"])
@pytest.mark.parametrize("wiring", ["gated", "feedback", "stacked"])
def test_loss_carries_state_and_agrees_with_logits(unit: str, wiring: str) -> None:
    model = small(unit=unit, wiring=wiring)
    ids = ids_of(model, TEXT[:60]).view(2, 30).T
    whole, _ = model.loss(ids[:-1], ids[1:])
    first, state = model.loss(ids[:10], ids[1:11])
    rest, _ = model.loss(ids[10:-1], ids[11:], state)
    torch.testing.assert_close((10 * first + 19 * rest) / 29, whole)
    logits, _ = model(ids[:-1])
    torch.testing.assert_close(torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[1:].flatten()), whole)


def test_score_is_the_cost_of_every_byte_given_those_before() -> None:
    model = small()
    torch.nn.init.normal_(model.head.bias)
    bits = model.score(TEXT)
    assert bits.shape == (len(TEXT),)
    assert bits.dtype == np.float64
    ids = ids_of(model, TEXT)
    loss, _ = model.loss(ids[:-1, None], ids[1:, None])
    assert bits[1:].mean() * math.log(2) == pytest.approx(loss.item(), rel=1e-5)
    first = torch.log_softmax(model.head.bias, 0)[ids[0]].item()
    assert bits[0] == pytest.approx(-first / math.log(2), rel=1e-5)
    changed = model.score(TEXT[:300] + b"Z" + TEXT[301:])
    assert (changed[:300] == bits[:300]).all()
    assert changed[300] != bits[300]
    assert len(model.score(b"")) == 0
    assert len(model.score(b"a")) == 1


def test_score_names_a_byte_it_does_not_know() -> None:
    with pytest.raises(DataError, match=r"0x00.* at offset 2"):
        small().score(b"ab\0")
    with pytest.warns(UserWarning, match="1 bytes outside the vocabulary"):
        assert len(small().score(b"ab\0", unknown="replace")) == 3


def test_it_comes_back_from_its_folder(tmp_path: Path) -> None:
    model = small(unit="gru", wiring="feedback", vocabulary=b"abc \n", dropout=0.25)
    model.save_pretrained(tmp_path / "m")
    model.save_pretrained(tmp_path / "m")  # over itself
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == [
        "config.json",
        "manifest.json",
        "model.safetensors",
    ]
    again = CharLM.from_pretrained(tmp_path / "m")
    assert not again.training
    assert again.config == model.config
    assert (again.score(b"a cab\n") == model.score(b"a cab\n")).all()
    model.save_pretrained(tmp_path / "half", dtype=torch.float16)
    half = CharLM.from_pretrained(tmp_path / "half")
    assert half.head.weight.dtype == torch.float32
    assert np.abs(half.score(b"a cab\n") - model.score(b"a cab\n")).max() < 0.01


@pytest.mark.parametrize(
    ("dtype", "found"),
    [
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
    ],
    ids=str,
)
def test_precision_is_kept_in_files(dtype: torch.dtype, found: torch.dtype, tmp_path: Path) -> None:
    model = small(dtype=dtype)
    with torch.no_grad():
        model.head.bias.fill_(1 / 3)
    model.save_pretrained(tmp_path)
    again = CharLM.from_pretrained(tmp_path)
    for one, other in zip(model.parameters(), again.parameters(), strict=True):
        assert other.dtype == found
        assert torch.equal(one.to(found), other)
    assert len(again.score(TEXT[:5])) == 5


def spoil_config(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    (folder / "manifest.json").unlink()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"hidden_size": 8}, r"disagree: .*weight_ih_l0 is \(28, 205\) instead of \(32, 205\)"),
        ({"wiring": "stacked"}, "is unexpected"),
        ({"architecture": "Seq2Seq"}, r"holds a program model \(Seq2Seq\), not a text model \(CharLM\)"),
        ({"unit": "sru"}, "describes no CharLM: unit must be one of"),
        ({"surprise": 1}, "describes no CharLM"),
        ({"vocabulary": [1, 1]}, "describes no CharLM"),
    ],
)
def test_a_folder_of_another_architecture_shows_the_difference(
    changes: dict[str, object], sentence: str, tmp_path: Path
) -> None:
    small().save_pretrained(tmp_path)
    spoil_config(tmp_path, **changes)
    with pytest.raises(DataError, match=sentence):
        CharLM.from_pretrained(tmp_path)


def test_damaged_files_are_refused_by_name(tmp_path: Path) -> None:
    small().save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-5] ^= 1
    weights.write_bytes(content)
    with pytest.raises(DataError, match=r"model.safetensors is damaged: expected sha256 [0-9a-f]{64}, found"):
        CharLM.from_pretrained(tmp_path)
    (tmp_path / "manifest.json").unlink()
    for garbage in (b"", b"\x80\x04pickle", (2**62).to_bytes(8, "little") + b"{}", b"\2" + bytes(7) + b"[]"):
        weights.write_bytes(garbage)
        with pytest.raises(DataError, match=r"model.safetensors is"):
            CharLM.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(DataError, match=r"config.json is damaged"):
        CharLM.from_pretrained(tmp_path)


def test_what_is_no_model_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a folder without a model"):
        CharLM.from_pretrained(tmp_path)
    (tmp_path / "config.yaml").touch()
    with pytest.raises(DataError, match="a run without a model"):
        CharLM.from_pretrained(tmp_path)
    with pytest.raises(DataError, match="nowhere is neither a folder nor a model"):
        CharLM.from_pretrained("nowhere")


def test_input_std_scales_what_reads_symbols_only() -> None:
    paper, wide = small(hidden_size=40), small(hidden_size=40, input_std=0.5)
    assert paper.layer.weight_ih_l1.abs().max() <= 0.08
    for _ in range(2):
        for weight in (wide.layer.weight_ih_l0, wide.layer.weight_ih_l1[:, :205]):
            assert weight.std().item() == pytest.approx(0.5, rel=0.05)
        assert wide.layer.weight_ih_l1[:, 205:].shape == (160, 40)
        assert wide.layer.weight_ih_l1[:, 205:].abs().max() <= 0.08
        assert wide.head.weight.abs().max() <= 0.08 and not wide.head.bias.any()
        for module in (wide.layer, wide.head):
            module.reset_parameters()


def test_loading_draws_nothing(tmp_path: Path, count_orthogonal: list[torch.Tensor]) -> None:
    small().save_pretrained(tmp_path)
    before = torch.get_rng_state()
    count_orthogonal.clear()
    CharLM.from_pretrained(tmp_path)
    assert not count_orthogonal
    assert torch.equal(torch.get_rng_state(), before)


def test_options_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="unit must be one of"):
        CharLM(unit="lstmm")
    with pytest.raises(ValueError, match="batch_first"):
        CharLM(batch_first=True)
    with pytest.raises(ValueError, match="each once"):
        CharLM(vocabulary=b"aab")


def test_absurd_sizes_in_a_config_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    small().save_pretrained(tmp_path)
    for changes in ({"num_layers": 10**9}, {"hidden_size": 10**15}, {"hidden_size": 10**30}):
        spoil = json.loads((tmp_path / "config.json").read_text())
        (tmp_path / "manifest.json").unlink(missing_ok=True)
        (tmp_path / "config.json").write_text(json.dumps({**spoil, **changes}))
        with pytest.raises(DataError, match=r"disagree|describes no CharLM"):
            CharLM.from_pretrained(tmp_path)
        (tmp_path / "config.json").write_text(json.dumps(spoil))


def test_a_score_is_that_of_float64_and_leaves_the_model_as_it_was() -> None:
    torch.manual_seed(3)
    model = CharLM("lstm", 20, 2, input_std=1.0, forget_bias=2.0).train()
    torch.nn.init.normal_(model.head.weight, std=1.0)
    bits = model.score(TEXT)
    assert np.abs(bits - copy.deepcopy(model).double().score(TEXT)).max() == 0
    assert model.training and model.head.weight.dtype == torch.float32
    ids = torch.from_numpy(model.vocabulary.encode(TEXT).astype(np.int64))[:, None]
    with torch.no_grad():
        narrow = model.eval().nats(ids[:-1], ids[1:])[0].flatten().double().numpy() / np.log(2)
    assert 1e-7 < np.abs(bits[1:] - narrow).max() < 1e-3
