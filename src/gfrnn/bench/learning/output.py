"""The race as a file of numbers, as a table, and as learning curves."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gfrnn.bench.learning.contenders import Contender
from gfrnn.bench.learning.race import Race, described, run
from gfrnn.errors import UsageError
from gfrnn.ops.doctor import facts
from gfrnn.storage.files import read_small, replace_file
from gfrnn.storage.tensorfile import pack_json, unpack_json
from gfrnn.tasks.text.corpus import Corpus
from gfrnn.training.runlog import commit

NUMBERS, TABLE = "learning.json", "learning.md"
COLUMNS = (
    "model", "parameters", "rows x length", "learning rate", "characters/s", "characters seen",
    "a scored character sees", "BPC",
)  # fmt: skip


def race_all(
    contenders: Sequence[Contender],
    text: Corpus,
    symbols: Callable[[np.ndarray], np.ndarray],
    race: Race,
    threads: int,
    out: Path | None,
    progress: Callable[[str], Any],
) -> dict[str, Any]:
    """Every contender in turn; with a folder `out` what is done stays done, also what another process does there."""
    about = {
        "text": text.name,
        "text_sha256": text.sha256,
        "threads": threads,
        "race": described(race),
        "valid_characters": len(text.split("valid")),
        "environment": facts(),
        "commit": commit(),
    }
    results = begin(out, about)
    texts = (symbols(text.split("train")), symbols(text.split("valid")))
    for contender in contenders:

        def keep(result: dict[str, Any]) -> None:
            results["contenders"] |= others(out) | {result["name"]: result}
            save(results, out)

        run(contender, texts, race, progress, results["contenders"].get(contender.name), keep)
    return results


def begin(out: Path | None, about: dict[str, Any]) -> dict[str, Any]:
    """What an earlier start of the same race left, else nothing yet."""
    if out is None or not (out / NUMBERS).exists():
        return {**about, "contenders": {}}
    found = unpack_json(read_small(out / NUMBERS), out / NUMBERS)
    for name in ("text_sha256", "threads", "race"):
        if found.get(name) != json.loads(json.dumps(about[name])):
            raise UsageError(f"{out / NUMBERS} is of another race (its {name} differs): name another folder with --out")
    return found


def others(out: Path | None) -> dict[str, Any]:
    """What is in the folder by now: other processes may have written there, of other contenders."""
    if out is None or not (out / NUMBERS).exists():
        return {}
    found: dict[str, Any] = unpack_json(read_small(out / NUMBERS), out / NUMBERS)["contenders"]
    return found


def save(results: dict[str, Any], out: Path | None) -> None:
    if out is not None:
        replace_file(out / NUMBERS, pack_json(results))
        replace_file(out / TABLE, as_markdown(results).encode())


def as_markdown(results: dict[str, Any]) -> str:
    """The table, what it is a table of, and the curves."""
    race = results["race"]
    done = [result for result in results["contenders"].values() if "bpc" in result]
    scored, glimpsed = (
        min(race[name], results["valid_characters"]) for name in ("final_characters", "curve_characters")
    )
    rates = ", ".join(f"{rate:g}" for rate in race["rates"])
    lines = [
        f"{race['minutes']:g} minutes of updates each, threads: {results['threads']}, after {race['search_minutes']:g} "
        f"for each learning rate tried ({rates}, and on past the end where the best is there); "
        f"{results['text']}, Adam, rate falling to 0, seed {race['seed']}. "
        f"BPC: the first {scored:,} characters of the validation split, the same for all. "
        f"CPU: {results['environment'].get('cpu', 'unknown')}.",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|---" * len(COLUMNS) + "|",
    ]
    for result in sorted(done, key=lambda result: result["bpc"] if result["bpc"] is not None else float("inf")):
        bpc = "diverged" if result["bpc"] is None else f"{result['bpc']:.3f}"
        minibatch, rate = f"{result['rows']} x {result['length']}", f"{result['learning_rate']:g}"
        speed, seen = f"{result['characters_per_second']:,.0f}", f"{result['characters'] / 1e6:.2f} M"
        cells = (result["about"], f"{result['parameters']:,}", minibatch, rate, speed, seen, result["sees"], bpc)
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", f"BPC on the first {glimpsed:,} characters of the validation split, by minutes:", ""]
    points = race["points"]
    minutes = [race["minutes"] * (k + 1) / points for k in range(points)]
    lines += [f"| minutes | {' | '.join(f'{minute:.3g}' for minute in minutes)} |", "|---" * (points + 1) + "|"]
    for result in done:
        curve = {point["point"]: f"{point['bpc']:.3f}" for point in result["curve"]}
        lines.append(f"| {result['name']} | {' | '.join(curve.get(k + 1, '') for k in range(points))} |")
    return "\n".join(lines) + "\n"
