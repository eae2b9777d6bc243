"""The cost of every block: the sum is the score, it is kept beside the run, and damage is seen."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from runs import run_tiny

from gfrnn.cli import main
from gfrnn.errors import DataError
from gfrnn.models import CharLM
from gfrnn.storage.run_folder import blocks_name
from gfrnn.tasks.text import blocks
from gfrnn.tasks.text.corpus import excerpt
from gfrnn.tasks.text.score import BLOCK, score_text

TEXT = excerpt().bytes[:30_700].tobytes()
ORIGIN = blocks.Origin("0" * 64, "test", len(TEXT), "1" * 64)


@pytest.fixture(scope="module")
def model() -> CharLM:
    torch.manual_seed(2)
    return CharLM("gru", 8, 2).eval()


@pytest.mark.parametrize("streams", [1, 5])
def test_blocks_are_the_bits_of_their_characters(streams: int, model: CharLM) -> None:
    score = score_text(model, model.vocabulary.encode(TEXT), streams=streams)
    bits = model.score(TEXT)
    expected = [bits[start : start + BLOCK].sum() for start in range(0, len(TEXT), BLOCK)]
    assert len(score.blocks) == 31
    assert score.blocks == pytest.approx(expected, rel=1e-4 if streams > 1 else 1e-6)
    assert score.blocks.sum() == pytest.approx(score.bits, rel=1e-12)


def test_kept_blocks_come_back_as_they_were(model: CharLM, tmp_path: Path) -> None:
    score = score_text(model, model.vocabulary.encode(TEXT))
    blocks.keep(tmp_path, ORIGIN, score)
    kept = blocks.read(tmp_path, "test")
    assert kept.origin == ORIGIN
    assert np.array_equal(kept.bits, score.blocks)
    assert kept.sizes.sum() == len(TEXT) and kept.sizes[-1] == 700
    assert kept.bpc == pytest.approx(score.bpc, rel=1e-12)
    with pytest.raises(DataError, match="keeps no code lengths of its valid split"):
        blocks.read(tmp_path, "valid")


def test_damage_is_seen(model: CharLM, tmp_path: Path) -> None:
    score = score_text(model, model.vocabulary.encode(TEXT))
    path = blocks.keep(tmp_path, ORIGIN, score)
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            kept = blocks.read(tmp_path, "test")
        except DataError:
            continue
        assert kept.origin == ORIGIN  # in the white space of the header
        assert np.array_equal(kept.bits, score.blocks)
    for cut in (0, 5, 100, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(DataError, match="is damaged"):
            blocks.read(tmp_path, "test")


def test_other_texts_are_not_compared(model: CharLM) -> None:
    bits = np.ones(31)
    other = blocks.Origin("2" * 64, "test", len(TEXT), "1" * 64)
    blocks.Blocks(ORIGIN, bits).comparable(blocks.Blocks(ORIGIN, bits))
    with pytest.raises(DataError, match=r"sha256 0000000000000000 \(test, 30,700\) and sha256 2222222222222222"):
        blocks.Blocks(ORIGIN, bits).comparable(blocks.Blocks(other, bits))


def test_eval_of_a_run_keeps_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_tiny(tmp_path)
    assert main(["eval", str(tmp_path / "run"), "--split", "valid", "--json"]) == 0
    kept = blocks.read(tmp_path / "run", "valid")
    assert json.loads(capsys.readouterr().out)["bpc"] == pytest.approx(kept.bpc, rel=1e-12)
    assert kept.origin.split == "valid" and kept.origin.characters == 1000
    assert not (tmp_path / "run" / blocks_name("test")).exists()
    (tmp_path / "alone").mkdir()
    CharLM("gru", 4, 1).save_pretrained(tmp_path / "alone")
    assert main(["eval", str(tmp_path / "alone"), "--split", "valid", "--quiet"]) == 0
    assert not (tmp_path / "alone" / blocks_name("valid")).exists()
