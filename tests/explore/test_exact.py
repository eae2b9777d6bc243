"""The page computes what Python computes: bits, gates, logits and seeded text, for every kind of model."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from browser import Browser, Page, ScriptError
from cases import MAIN, Case, every_case

from gfrnn.explore.pack import packed
from gfrnn.explore.page import page, source
from gfrnn.models import CharLM

EXAMPLES = [example["text"] for example in json.loads(source("examples.json"))]
TEXT = "".join(EXAMPLES).encode()[:2000].decode("utf-8", "ignore")
TOLERANCE = 1e-9  # against Python in 64 bits: in 32 it is itself off by more than 1e-5 after 2,000 characters
EVERY = 50  # of the logits one row in so many is compared: they are 205 numbers for every byte


def small_model(case: Case) -> CharLM:
    """A model of this kind whose numbers the page can hold exactly."""
    torch.manual_seed(3)
    options = case.options
    output = "all" if case.input_skip else "last"
    model = CharLM(case.unit, 9, options.pop("num_layers"), options.pop("wiring"), output=output, **options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.6 if parameter.dim() == 1 else parameter.shape[1] ** -0.5)
    return model.as_half().eval()


@torch.no_grad()
def in_python(model: CharLM, text: bytes) -> tuple[np.ndarray, ...]:
    """Bits (T,), gates (T, L, L) and logits (T / EVERY, V) as the package has them, in 64 bits."""
    model = copy.deepcopy(model).double()
    ids = torch.from_numpy(model.vocabulary.encode(text).astype(np.int64))[:, None]
    features, _, gates = model.layer(ids, return_gates=True)
    return model.score(text), gates[:, 0].numpy(), model.head(features[::EVERY, 0]).numpy()


def in_page(tab: Page, text: str, model: int = 0, **options: Any) -> tuple[np.ndarray, ...]:
    call = f"{json.dumps(text)}, {json.dumps({'model': model, **options})}"
    logits = f"(await gfrnn.logits({call})).filter((_, t) => t % {EVERY} === 0)"
    found = tab.run(f"(async () => [await gfrnn.score({call}), await gfrnn.gates({call}), {logits}])()")
    return tuple(np.array(part) for part in found)


def assert_same(found: tuple[np.ndarray, ...], expected: tuple[np.ndarray, ...]) -> None:
    for name, here, there in zip(("bits", "gates", "logits"), found, expected, strict=True):
        assert here.shape == there.shape, name
        assert np.abs(here - there).max() <= TOLERANCE, name


# The engine alone: a page for each of the many kinds of models would take minutes.
ENGINE = """
(() => {
  const done = (work) => { for (;;) { const turn = work.next(); if (turn.done) return turn.value; } };
  const numbers = (rows) => rows.map((row) => Array.from(row));
  return [true, false].map((simd) => {
    const reader = new Reader(%(model)s, simd), symbols = %(symbols)s, L = reader.network.L;
    const { bits, gates, logits } = done(reader.score({ symbols, withGates: true, withLogits: true }));
    const sampling = readSampling({ seed: 5, temperature: 0.9 });
    return [
      Array.from(bits), numbers(gates), numbers(logits.filter((_, t) => t %% %(every)s === 0)), reader.network.simd,
      done(reader.generate({ symbols: symbols.slice(0, 20), max_new: 40, sampling })),
    ];
  });
})()
"""


@pytest.fixture(scope="module")
def bare(browser: Browser, pages: dict[str, Path]) -> Iterator[Page]:
    with browser.page() as tab:
        tab.goto(pages["tiny"].as_uri() + "#t=a")
        yield tab
        assert tab.complaints == []


@every_case
def test_every_kind_of_model(case: Case, bare: Page) -> None:
    """With SIMD and without; over 2,000 characters for one of each unit, wiring and layout, over 300 for the rest."""
    model = small_model(case)
    text = TEXT.encode() if case in MAIN else TEXT.encode()[:300]
    symbols = model.vocabulary.encode(text)
    script = ENGINE % {"model": json.dumps(packed(model, "small")), "symbols": symbols.tolist(), "every": EVERY}
    expected = in_python(model, text)
    for (bits, gates, logits, simd, drawn), asked in zip(bare.run(script), (True, False), strict=True):
        assert simd == asked
        assert_same((np.array(bits), np.array(gates).reshape(expected[1].shape), np.array(logits)), expected)
        assert model.vocabulary.decode(drawn) == model.generate(text[:20], 40, seed=5, temperature=0.9)


def test_two_models_in_one_page(browser: Browser, tmp_path: Path) -> None:
    cases = (Case("gru", "gated", "own", input_skip=True), Case("tanh", "feedback"))
    models = [small_model(case) for case in cases]
    path = tmp_path / "page.html"
    path.write_text(
        page([packed(model, str(case)) for model, case in zip(models, cases, strict=True)]), encoding="utf-8"
    )
    with browser.page() as tab:
        tab.goto(path.as_uri())
        for number, model in enumerate(models):
            assert_same(in_page(tab, TEXT, number), in_python(model, TEXT.encode()))
        with pytest.raises(ScriptError, match="there is no model 2"):
            tab.run("gfrnn.score('a', {model: 2})")
        assert tab.complaints == []


def test_the_packaged_model(opened: Any, model: CharLM) -> None:
    assert_same(in_page(opened("packaged"), TEXT), in_python(model, TEXT.encode()))


def test_without_workers_and_webassembly(opened: Any, model: CharLM) -> None:
    tab = opened("packaged", before="delete window.Worker; delete window.WebAssembly;")
    assert tab.text("#engine-told") == "Runs in the page, in slices, by plain JavaScript."
    assert_same(in_page(tab, TEXT[:300]), in_python(model, TEXT[:300].encode()))


def test_held_gates_are_scaled_blocks(opened: Any, tiny: CharLM) -> None:
    """A gate held at v does what v times its block of the candidate's matrix does in a network without gates."""
    held = [[1.0, 0.0, 0.5], [0.5, 1.0, 0.0], [0.0, 0.25, 1.0]]
    expected = CharLM("lstm", 12, 3, "feedback").eval()
    state = {name: tensor.clone() for name, tensor in tiny.state_dict().items() if "g_l" not in name}
    for j, i in itertools.product(range(3), range(3)):
        state[f"layer.weight_hh_l{j}"][24:36, 12 * i : 12 * (i + 1)] *= held[j][i]
    expected.load_state_dict(state)
    bits, gates, _ = in_page(opened(), TEXT, gates=held)
    assert np.abs(bits - expected.double().score(TEXT.encode())).max() <= TOLERANCE
    assert (gates == np.array(held)).all()


def test_gates_that_are_not_held_stay_as_learnt(opened: Any, tiny: CharLM) -> None:
    tab = opened()
    learnt, held = (
        in_page(tab, TEXT[:50], gates=gates) for gates in (None, [[None] * 3, [None, 0.3, None], [None] * 3])
    )
    assert (held[1][:, 1, 1] == 0.3).all()
    assert np.array_equal(learnt[1][0, 0], held[1][0, 0])
    assert not np.allclose(learnt[0], held[0])


SEEDS = [0, 1, 7, 2**32 - 1, 2**32, 2**53 + 1, 2**64 - 1, 2**64, 10**40]


def test_random_numbers_are_numpys(bare: Page) -> None:
    for seed in SEEDS:
        script = f"(() => {{ const u = new Uniform({seed}n, 0); return Array.from({{length: 50}}, () => u.next()) }})()"
        assert bare.run(script) == np.random.default_rng([seed, 0]).random(50).tolist(), seed


SETTINGS = [
    {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    for temperature, top_k, top_p in itertools.product((0, 0.7, 1.5), (None, 5), (None, 0.9))
]


def test_seeded_text_is_pythons(opened: Any, model: CharLM) -> None:
    tab, prompt = opened("packaged"), "<title>Éire</title>\n"
    for seed, settings in enumerate(SETTINGS):
        found = tab.run(
            f"gfrnn.generate({json.dumps(prompt)}, {json.dumps({'max_new': 120, 'seed': seed, **settings})})"
        )
        assert found == model.generate(prompt, 120, seed=seed, **settings).decode("utf-8", "replace"), settings


def test_without_a_seed_texts_differ(opened: Any) -> None:
    tab = opened()
    assert tab.run("gfrnn.generate('a', {max_new: 30})") != tab.run("gfrnn.generate('a', {max_new: 30})")


def test_tags_are_counted_as_in_reports(opened: Any) -> None:
    """As `gfrnn generate --json` counts them, through what the page shows under a text."""
    from gfrnn.report.compare import tags

    tab = opened(
        "two", "#" + "t=%3Ctitle%3Ex%3C%2Ftitle%3E%3Cminor%20%2F%3E%5B%5B%20%7B%7Ba%7D%7D%20%5B%5Bb%5D%5D&c=40"
    )
    tab.click("#writing .primary")
    tab.expect(
        "document.querySelector('#writing .stop').disabled && document.querySelector('#written tbody tr') !== null"
    )
    for number in range(1, 3):
        column = f"#written > div:nth-child({number})"
        whole = tab.text(f"{column} pre")
        rows = tab.all(f"{column} tbody tr", "[...one.children].map((cell) => cell.textContent)")
        assert {name: (int(opened), int(closed)) for name, opened, closed in rows} == tags(whole)
