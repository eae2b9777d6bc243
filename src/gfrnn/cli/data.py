"""`gfrnn data`: which text would be used, and fetching enwik8."""

from gfrnn.cli.common import print_report
from gfrnn.cli.options import Parser


def main(argv: list[str]) -> int:
    parser = Parser(prog="gfrnn data", description="Which text would be used: find it, check it, or download enwik8.")
    parser.add_argument("--data", type=str, help="a text: raw, .gz or .zip")
    parser.add_argument("--download", action="store_true", help="fetch enwik8 into the cache folder (35 MB)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(argv)
    from gfrnn.models.vocabulary import Vocabulary
    from gfrnn.tasks.text import corpus

    if args.download:
        from gfrnn.cli.progress import Bar

        with Bar("download", quiet=args.json) as progress:
            corpus.download(tick=lambda done: progress.show_if_due(done, ""))
    text = corpus.load(args.data)
    splits = {name: len(text.split(name)) for name in ("train", "valid", "test")}
    unknown = Vocabulary().count_unknown(text.bytes)
    report = {"text": text.name, "bytes": len(text.bytes), "sha256": text.sha256, **splits}
    print_report(report | {"enwik8": text.is_enwik8, "unknown_bytes": unknown}, args.json)
    if text.fallback and not args.json:
        print(corpus.EXCERPT_NOTE)
    return 0
