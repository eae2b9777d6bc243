"""What a bench measures: models, shapes, and how often. Numbers only; torch is not imported here."""

from dataclasses import dataclass

VOCABULARY = 205
RECIPE = "modern-gated-lstm"  # whose whole updates are measured
SECTIONS = (
    *("machine", "train", "precision", "forward", "generate"),
    *("memory", "minibatch", "updates", "scaling", "sizes"),
)
# of --learning, see learning/contenders.py
LEARNERS = tuple(
    name + precision for name in ("gf-lstm", "lstm", "mingru", "transformer") for precision in ("", "-bfloat16")
)


@dataclass(frozen=True)
class Size:
    """A gated-feedback character model with the paper's skips over VOCABULARY symbols."""

    unit: str
    num_layers: int
    hidden_size: int

    def __str__(self) -> str:
        from gfrnn.equations import UNITS

        return f"GF-{UNITS[self.unit].title} {self.num_layers}x{self.hidden_size}"


LSTM, GRU, TANH = Size("lstm", 3, 140), Size("gru", 3, 165), Size("tanh", 3, 303)
LARGE = Size("lstm", 5, 700)
# A stacked nn.LSTM named by its size, to be compared with by that name: 1.35 M parameters, LSTM above has 1.30 M.
NAMED_PEER = {"lstm": 228}


def small_name(size: Size) -> str:
    """What the group of a size with a small minibatch is called, beside that of the size itself."""
    return f"{size}, small minibatch"


@dataclass(frozen=True)
class Plan:
    """How much is measured. B x T: rows of the minibatch x steps of backpropagation."""

    name: str
    repeats: int  # rounds of a group of interleaved competitors ...
    least_repeats: int  # ... unless it took longer than `group_seconds`, but never fewer than these
    group_seconds: float
    check_flops: float  # a check of equality runs as many of the timed steps as this buys, in float64
    backends: tuple[str, ...] = ("cpu", "manual", "reference")  # the first that runs here stands for us
    trained: tuple[Size, ...] = (LSTM, GRU, TANH)
    others: tuple[Size, ...] = (LSTM, GRU, TANH)  # forward, generate, memory, minibatch
    full_line_up: bool = True  # every contender; else the loop and, where a target names it, a layer of torch's
    shape: tuple[int, int] = (100, 100)
    small: tuple[tuple[int, int], ...] = ((16, 50),)  # B x T of LSTM in the section train, besides `shape`
    minibatches: tuple[tuple[int, int], ...] = ((25, 50), (100, 100))
    updated: tuple[tuple[int, int], ...] = (
        (16, 50),
        (100, 100),
    )  # B x T of whole updates: the modern recipes', the paper's
    precise: tuple[tuple[int, int], ...] = ((16, 50), (100, 100))  # B x T of the section precision
    beyond_caches: tuple[tuple[Size, int, int], ...] = ((LARGE, 100, 10),)  # model, B, T: there, ours alone
    square: int = 2048  # the matrix product whose rate is called the peak
    rows: tuple[int, ...] = (8, 12, 25, 50, 100)  # of the products of our shape
    memory_bytes: int = 1 << 28  # read to measure the memory's bandwidth
    generated: int = 2000
    generating: tuple[Size, ...] = (Size("lstm", 3, 191), LARGE)  # besides `others`, against the loop
    batches: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # at `scaling_steps` steps
    scaling_steps: int = 100
    steps: tuple[int, ...] = (100, 200, 500, 1000)  # at `scaling_rows` rows
    scaling_rows: int = 25
    hidden_sizes: tuple[int, ...] = (70, 100, 140, 200, 280, 400)  # GF-LSTM of 3 layers, at the two above
    sizes: tuple[tuple[Size, int, int], ...] = (  # model, B, T
        (LSTM, 100, 100),
        (GRU, 100, 100),
        (TANH, 100, 100),
        (Size("lstm", 3, 191), 100, 100),
        (LARGE, 100, 10),
    )


FULL = Plan(
    "full",
    repeats=7,
    least_repeats=3,
    group_seconds=60.0,
    check_flops=6e10,
)
QUICK = Plan(
    "quick",
    repeats=5,
    least_repeats=1,
    group_seconds=3.0,
    check_flops=2e9,
    others=(LSTM,),
    full_line_up=False,
    shape=(100, 50),
    small=(),
    beyond_caches=(),
    rows=(8, 25, 100),
    generated=300,
    generating=(),
    batches=(1, 8, 32, 128),
    scaling_steps=20,
    steps=(25, 100, 400),
    scaling_rows=8,
    hidden_sizes=(70, 140, 280),
    sizes=((Size("lstm", 3, 191), 25, 20),),
)
