"""Your own text, from training to sharing: train, score, write, and a folder for others.

python examples/own_text.py my.txt runs/mine
"""

import sys
from pathlib import Path

from gfrnn.models import CharLM
from gfrnn.recipes import find
from gfrnn.training.run import train


def main(text: str, run: str, minutes: float = 10, **options: object) -> tuple[CharLM, Path]:
    config = find("modern-gated-lstm").config.replace(**{"data": text, "epochs": None, "minutes": minutes} | options)
    result = train(config, Path(run))  # again: goes on where it stopped
    print(f"{result['updates']} updates, {result['bpc']:.3f} bits per character")
    model = CharLM.from_pretrained(run)
    beginning = Path(text).read_bytes()[:200]
    print(f"its beginning costs {model.score(beginning, unknown='replace').mean():.3f} bits per character")
    print(model.generate(beginning[:20], 200, temperature=0.7, seed=1).decode(errors="replace"))
    shared = Path(run) / "shared"
    model.save_pretrained(shared)  # two files and their checksums; nothing in them can run
    return model, shared


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
