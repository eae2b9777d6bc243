"""`gfrnn explore` without a browser: what it writes, and what it refuses."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from gfrnn.cli import explore as command
from gfrnn.cli import main
from gfrnn.explore import page as pages
from gfrnn.explore.pack import packed
from gfrnn.explore.page import ENGINE, VIEW, as_data, page, source
from gfrnn.models import CharLM, Seq2Seq

PACKAGED = "gf-lstm-enwik8"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    CharLM(hidden_size=4, num_layers=2).save_pretrained(tmp_path / "run")
    return tmp_path / "run"


def test_the_packaged_model_makes_a_page_under_six_megabytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new folder/page.html"
    assert main(["explore", "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"page": str(out), "bytes": out.stat().st_size}
    assert 1e6 < out.stat().st_size < 6e6


def test_the_page_in_the_docs_is_the_one_its_command_writes(tmp_path: Path) -> None:
    line = "gfrnn explore gf-lstm-enwik8 stacked-lstm-enwik8 --out docs/explorer.html"
    docs = Path(__file__).parents[1] / "docs"
    assert line in (docs / "explorer.md").read_text()
    assert main([*line.split()[1:-1], str(tmp_path / "page.html")]) == 0
    current = (tmp_path / "page.html").read_bytes() == (docs / "explorer.html").read_bytes()
    assert current, f"docs/explorer.html is not what `{line}` writes: run it again"


def test_the_page_needs_nothing_from_outside(run: Path, tmp_path: Path) -> None:
    assert main(["explore", str(run), "--out", str(tmp_path / "page.html")]) == 0
    content = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert not re.search(r"""\b(?:src|href)\s*=\s*["'](?!#)""", content)
    assert not re.search(r"\b(?:fetch|importScripts|XMLHttpRequest|WebSocket|eval)\s*\(", content)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', content)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline" not in policy[1] and "http" not in policy[1]
    assert "{{" not in re.sub(r"<script.*?</script>", "", content, flags=re.DOTALL)


def test_weights_are_packed_as_half_rounds_them() -> None:
    torch.manual_seed(0)
    model = CharLM(hidden_size=5, num_layers=2)
    made = packed(model, "name")
    data = base64.b64decode(made["data"])
    state = model.as_half().state_dict()
    assert {one["name"] for one in made["tensors"]} == set(state)
    for one in made["tensors"]:
        kind = np.dtype(f"<f{one['bits'] // 8}")
        values = np.frombuffer(data, kind, int(np.prod(one["shape"])), one["at"]).reshape(one["shape"])
        assert one["at"] % kind.itemsize == 0
        assert np.array_equal(values, state[one["name"]].numpy()), one["name"]


def test_every_source_of_the_page_is_in_it() -> None:
    folder = Path(pages.__file__).parent
    for part, names in {"engine": ENGINE, "view": VIEW}.items():
        assert {path.stem for path in (folder / part).iterdir()} == set(names)
    for path in folder.rglob("*"):
        if path.suffix in (".js", ".css", ".html", ".py"):
            assert len(path.read_text(encoding="utf-8").splitlines()) < 300, path.name
    assert "</script" not in "".join(
        source(f"{p}/{n}.js") for p, names in (("engine", ENGINE), ("view", VIEW)) for n in names
    )


def test_a_name_cannot_break_out_of_the_page() -> None:
    name = "</script><script>alert(1)</script>&"
    content = page([packed(CharLM(hidden_size=3, num_layers=1), name)])
    assert "<script>alert" not in content
    assert json.loads(as_data([name])) == [name]


def refused(words: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["explore", *words]) == code
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    return captured.err


def test_what_makes_no_page(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(tmp_path / "page.html")]
    Seq2Seq(hidden_size=4, num_layers=1).save_pretrained(tmp_path / "programs")
    sentence = refused([str(tmp_path / "programs"), *out], 2, capsys)
    assert "is a program model" in sentence and f"gfrnn run-program {tmp_path / 'programs'}" in sentence
    (tmp_path / "started").mkdir()
    (tmp_path / "started/config.yaml").write_text("")
    assert "a run without a model" in refused([str(tmp_path / "started"), *out], 3, capsys)
    assert "neither a folder nor a model" in refused(["nowhere", *out], 3, capsys)
    assert "2 models side by side, not 3" in refused([str(run)] * 3 + out, 2, capsys)
    assert re.search(
        r"would have \d\.\d MB, more than --max-mb 0.05", refused([str(run), "--max-mb", "0.05", *out], 2, capsys)
    )
    assert "--max-mb must be greater than 0" in refused([str(run), "--max-mb", "0", *out], 2, capsys)
    assert "is a folder" in refused([str(run), "--out", str(tmp_path)], 2, capsys)
    assert "cannot be written" in refused([str(run), "--out", str(run / "config.json" / "page.html")], 3, capsys)
    assert not (tmp_path / "page.html").exists()


def test_weights_that_sixteen_bits_cannot_hold(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = CharLM.from_pretrained(run)
    with torch.no_grad():
        model.head.weight[0, 0] = 1e6
    model.save_pretrained(run)
    assert "head.weight has numbers that 16 bits cannot hold" in refused(
        [str(run), "--out", str(tmp_path / "p.html")], 3, capsys
    )


def test_open_starts_the_browser(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(command.webbrowser, "open", lambda address: bool(shown.append(address)))
    assert main(["explore", str(run), "--out", str(tmp_path / "my page.html"), "--open"]) == 0
    assert shown == [(tmp_path / "my page.html").as_uri()]
    assert "no browser was found" in capsys.readouterr().err
