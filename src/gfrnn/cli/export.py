"""`gfrnn export`: a trained text model for other runtimes."""

from pathlib import Path
from typing import Literal

from gfrnn.cli.common import packaged, print_report
from gfrnn.cli.options import Parser


def main(argv: list[str]) -> int:
    parser = Parser(
        prog="gfrnn export",
        description="Write a text model for other runtimes; what is off by more than 1e-5 is not written.",
    )
    parser.add_argument("run", nargs="?", type=str, help="run or model folder [the model in the package]")
    parser.add_argument(
        "--format",
        type=Literal["onnx", "torch-export", "hf"],
        default="onnx",
        help="onnx: a step and a sequence; torch-export: a step; hf: a Hugging Face folder [onnx]",
    )
    parser.add_argument("--out", type=Path, help="folder to write [exported-FORMAT]")
    parser.add_argument("--force", action="store_true", help="replace files in a folder that exists")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    args = parser.parse_args(argv)
    from gfrnn.export.folder import export

    out = args.out or Path(f"exported-{args.format}")
    differences = export(args.run or packaged(), args.format, out, args.force)
    if args.json:
        print_report({"folder": str(out), "format": args.format, "differences": differences}, as_json=True)
        return 0
    for name, difference in differences.items():
        print(f"{out / name} agrees with the model to {difference:.1e}")
    return 0
