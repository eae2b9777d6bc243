"""Every recipe: complete, with the right number of parameters, the paper's number, and it trains."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import write_text

from gfrnn.errors import DataError, UsageError
from gfrnn.models import CharLM
from gfrnn.recipes import find, load
from gfrnn.training.config import Config, OptimizerConfig
from gfrnn.training.run import train

TEXT_RECIPES = [name for name, recipe in load().items() if recipe.config.task == "hutter"]
PAPER = Path(__file__).parents[1] / "results" / "paper.csv"


def test_every_row_of_the_papers_tables_has_its_recipe() -> None:
    rows = [row for row in csv.DictReader(PAPER.read_text().splitlines()) if row["recipe"]]
    assert len(rows) == 13
    for row in rows:
        recipe = find(row["recipe"])
        assert recipe.paper == float(row["value"])
        model = recipe.config.model
        assert (model.unit, model.num_layers, model.hidden_size) == (row["unit"], int(row["layers"]), int(row["units"]))
    quoted = {name for name in TEXT_RECIPES if name.startswith("hutter-") and find(name).paper is not None}
    assert {row["recipe"] for row in rows} == quoted


def test_the_printed_reading_has_rows_of_its_own() -> None:
    """Unit-wise gates that see their own layer only leave room for more units at equally many parameters."""
    for unit in ("gru", "lstm"):
        printed, trained = find(f"modern-gated-own-{unit}"), find(f"modern-gated-{unit}")
        assert (printed.config.model.gates_see, trained.config.model.gates_see) == ("own", "all")
        assert printed.config.model.hidden_size > trained.config.model.hidden_size
        assert printed.parameters == pytest.approx(trained.parameters, rel=0.01)


def test_every_row_but_the_large_model_has_a_modern_twin() -> None:
    rows = {name.removeprefix("hutter-") for name in TEXT_RECIPES if name.startswith("hutter-")}
    twins = {name.removeprefix("modern-") for name in TEXT_RECIPES if name.startswith("modern-")}
    assert rows - twins == {"large"}


def test_modern_recipes_multiply_as_the_cpu_does_best_and_the_papers_exactly() -> None:
    for name, recipe in load().items():
        assert recipe.config.run.precision == ("auto" if name.startswith("modern-") else "float32"), name


@pytest.mark.parametrize("name", TEXT_RECIPES)
def test_the_number_of_parameters_is_the_one_it_says(name: str) -> None:
    recipe = find(name)
    model = CharLM(**vars(recipe.config.model), device="meta")
    assert sum(p.numel() for p in model.parameters()) == recipe.parameters


def two_updates(name: str, folder: Path, **options: Any) -> None:
    short = {"rows": 2, "length": 5, "epochs": None, "updates": 2, "validate_every": 2, "validate_chars": 200}
    config = find(name).config.replace(data=write_text(folder), **short, **options)
    result = train(config, folder / "run")
    assert (result["updates"], result["characters"], result["skipped"]) == (2, 20, 0)
    assert 4 < result["bpc"] < 9


@pytest.mark.parametrize("name", TEXT_RECIPES)
def test_it_trains_for_two_updates(name: str, tmp_path: Path) -> None:
    """With fewer units: how many it has is asked above, and most of the time would go into starting their weights."""
    two_updates(name, tmp_path, hidden_size=12)


OF_FULL_SIZE = ["hutter-gated-lstm", "modern-stacked-gru"]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in OF_FULL_SIZE else pytest.mark.slow) for name in TEXT_RECIPES],
)
def test_it_trains_at_its_full_size(name: str, tmp_path: Path) -> None:
    two_updates(name, tmp_path)


def test_the_papers_settings() -> None:
    lstm, tanh, large = (find(f"hutter-{name}").config for name in ("gated-lstm", "gated-tanh", "large"))
    assert (lstm.data.rows, lstm.data.length, lstm.data.reset_every, lstm.run.epochs) == (100, 100, 100, 100)
    assert lstm.optimizer == OptimizerConfig("rmsprop", 1e-3, momentum=0.9, decay=0.95, epsilon=1e-4)
    assert tanh.optimizer.learning_rate == 5e-5
    assert (large.optimizer.optimizer, large.optimizer.learning_rate) == ("adam", 1e-3)
    assert (large.optimizer.momentum, large.optimizer.decay) == (0.9, 0.99)


def test_a_config_comes_back_from_its_file(tmp_path: Path) -> None:
    for name, recipe in load().items():
        recipe.config.save(tmp_path / name)
        assert Config.load(tmp_path / name) == recipe.config


def test_an_unknown_recipe_or_option_names_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"unknown recipe 'hutter-gated-lsmt'; did you mean 'hutter-gated-lstm'"):
        find("hutter-gated-lsmt")
    with pytest.raises(UsageError, match=r"unknown option 'hiden_size'; did you mean 'hidden_size'"):
        find("hutter-gated-lstm").config.replace(hiden_size=3)


def test_the_start_is_the_papers_or_the_modern_one(tmp_path: Path) -> None:
    def start(name: str) -> CharLM:
        config = find(name).config.replace(data=write_text(tmp_path), rows=2, length=5)
        return config.build_task().build_model(1)

    paper, modern = start("hutter-gated-lstm"), start("modern-gated-lstm")
    for layer in (paper.layer, modern.layer):
        block = layer.weight_hh_l1[:140, 140:280]
        torch.testing.assert_close(block @ block.T, torch.eye(140), atol=1e-5, rtol=0)
    assert paper.layer.weight_ih_l0.abs().max() <= 0.08
    assert paper.layer.bias_l0.abs().max() == 0
    assert modern.layer.weight_ih_l0.std().item() == pytest.approx(0.5, rel=0.02)
    assert modern.layer.bias_l0[140:280].unique().tolist() == [1.0]
    again = start("modern-gated-lstm")
    assert all(torch.equal(p, q) for p, q in zip(modern.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize(
    ("name", "layers", "gates"),
    [
        ("hutter-gated-lstm", 1, 4),
        ("modern-gated-lstm", 1, 4),
        ("hutter-stacked-gru", 1, 3),
        ("programs-gated-gru", 2, 3),
    ],
)
def test_every_weight_starts_once(
    name: str, layers: int, gates: int, tmp_path: Path, count_orthogonal: list[torch.Tensor]
) -> None:
    config = find(name).config.replace(hidden_size=6, rows=2)
    if config.task == "hutter":
        config = config.replace(data=write_text(tmp_path), length=5)
    model = config.build_task().build_model(1)
    sources = 1 if config.model.wiring == "stacked" else config.model.num_layers
    assert len(count_orthogonal) == layers * config.model.num_layers * gates * sources
    torch.manual_seed(1)
    first = next(model.children())
    again = type(first)(
        first.input_size,
        6,
        config.model.num_layers,
        wiring=config.model.wiring,
        input_skip=True,
        forget_bias=config.model.forget_bias,
        input_std=config.model.input_std,
        normalise=config.model.normalise,
    )
    assert all(torch.equal(p, q) for p, q in zip(first.parameters(), again.parameters(), strict=True))


def test_a_yaml_bomb_is_refused_in_a_short_sentence(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x]", *(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 40))]
    bomb = "\n".join([*lines, "recipe: r", "task: hutter", "data:", "  rows: *a39"])
    (tmp_path / "config.yaml").write_text(bomb)
    with pytest.raises(DataError, match="rows must be of type int") as raised:
        Config.load(tmp_path / "config.yaml")
    assert len(str(raised.value)) < 500
    (tmp_path / "config.yaml").write_bytes(b"x" * (2 << 20))
    with pytest.raises(DataError, match="more than"):
        Config.load(tmp_path / "config.yaml")
