"""`gfrnn demo`: a stacked and a gated-feedback LSTM with equally many parameters learn side by side on real text."""

from pathlib import Path
from typing import Any

from gfrnn.cli.options import Parser

RECIPES = ("modern-stacked-lstm", "modern-gated-lstm")
PROMPT = b"  <page>\n    <title>"
SAMPLE_CHARS = 300
LEARNING_RATE = 8e-3  # minutes want a larger one than the recipes' epoch: docs/decisions.md


def main(argv: list[str]) -> int:
    parser = Parser(prog="gfrnn demo", description="Train two models on the excerpt in the package and compare them.")
    parser.add_argument("--minutes", type=float, default=1.6, help="training time of each model [1.6]")
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="where the runs are kept [runs/demo]")
    parser.add_argument("--seed", type=int, default=1, help="[1]")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    args = parser.parse_args(argv)
    from gfrnn.tasks.text.corpus import EXCERPT

    results = []
    for name in RECIPES:
        results.append(train(name, args.out / name, EXCERPT, args.minutes, args.seed, args.quiet))
    report(results, args.out)
    return 0


def train(name: str, out: Path, data: str, minutes: float, seed: int, quiet: bool) -> dict[str, Any]:
    from gfrnn.cli.progress import displays
    from gfrnn.recipes import find
    from gfrnn.training.run import train as run

    config = find(name).config.replace(
        data=data, epochs=None, minutes=minutes, learning_rate=LEARNING_RATE, seed=seed, validate_chars=0
    )
    return run(config, out, given={"seed", "minutes", "data"}, progress=displays(quiet))


def report(results: list[dict[str, Any]], out: Path) -> None:
    """The table, a sample of each model, and the curves."""
    from gfrnn.models import CharLM
    from gfrnn.report import curves

    for result in results:
        text = CharLM.from_pretrained(result["run"]).generate(PROMPT, SAMPLE_CHARS, temperature=0.7, seed=1)
        print(f"\n--- {result['recipe']} continues {PROMPT.decode()!r}\n{(PROMPT + text).decode('utf-8', 'replace')}")
    print(f"\n{'model':<22}{'parameters':>12}{'valid BPC':>12}{'characters':>13}{'chars/s':>10}{'seconds':>10}")
    for r in results:
        rate = r["characters"] / max(r["seconds"], 1e-9)
        print(
            f"{r['recipe']:<22}{r['parameters']:>12,}{r['bpc']:>12.3f}{r['characters']:>13,}{rate:>10,.0f}{r['seconds']:>10.0f}"
        )
    print("\n(on the 2 MB excerpt in the package: not comparable with the paper's numbers on enwik8)")
    try:
        files = curves.plot([Path(result["run"]) for result in results], out / "curves")
        print("curves: " + ", ".join(map(str, files)))
    except ValueError as error:  # matplotlib is an extra
        print(f"no curves: {error}")
