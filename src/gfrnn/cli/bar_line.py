"""One line of progress that fits any terminal: what matters most goes last."""

from collections.abc import Iterable
from typing import NamedTuple

from rich.console import RenderableType
from rich.progress import Progress, Task
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

WIDEST_BAR, NARROWEST_BAR = 40, 10


class Layout(NamedTuple):
    """What a line shows; `bar` is its width, 0 for none."""

    title: str
    bar: int
    percent: str
    words: str
    time: str


def layout(title: str, fraction: float, words: str, time: str, width: int) -> Layout:
    """What fits. The bar goes first, then the later words (two spaces stand between groups of them, which are never
    cut), then the time, then all words, then the end of the title.

    >>> layout("train", 0.5, "update 10  2.10 BPC", "0:01:00", 60)
    Layout(title='train', bar=21, percent=' 50%', words='update 10  2.10 BPC', time='0:01:00')
    >>> layout("train", 0.5, "update 10  2.10 BPC", "0:01:00", 30)
    Layout(title='train', bar=0, percent=' 50%', words='update 10', time='0:01:00')
    >>> layout("modern-gated-lstm", 0.5, "update 10  2.10 BPC", "0:01:00", 16)
    Layout(title='modern-gat…', bar=0, percent=' 50%', words='', time='')
    """
    percent = f"{int(100 * fraction):3d}%"
    fixed = len(title) + 1 + len(percent)
    room = width - fixed - len(words) - len(time) - (words > "") - (time > "")
    if room > NARROWEST_BAR:
        return Layout(title, min(room - 1, WIDEST_BAR), percent, words, time)
    groups = words.split("  ")
    for end in dict.fromkeys((time, "")):
        most = width - fixed - len(end) - (end > "") - 1
        for count in range(len(groups), 0, -1):
            said = "  ".join(groups[:count])
            if len(said) <= most:
                return Layout(title, 0, percent, said, end)
    most = width - 1 - len(percent)
    return Layout(title if len(title) <= most else title[: most - 1] + "…", 0, percent, "", "")


class OneLine(Progress):
    """rich's progress with our line for a task; a finished one says how long it took."""

    def get_renderables(self) -> Iterable[RenderableType]:
        return [self.line(task) for task in self.tasks]

    def line(self, task: Task) -> RenderableType:
        fraction = task.completed / (task.total or 1.0)
        seconds = task.finished_time if task.finished else task.time_remaining
        time = "" if seconds is None else f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02}:{int(seconds) % 60:02}"
        shown = layout(task.description, fraction, task.fields["words"], time, self.console.width)
        grid = Table.grid(padding=(0, 1, 0, 0), pad_edge=False)
        bar = [ProgressBar(total=1.0, completed=fraction, width=shown.bar)] if shown.bar else []
        colours = ("", "progress.percentage", "", "progress.remaining")
        texts = [Text(text, style, no_wrap=True) for text, style in zip(shown[:1] + shown[2:], colours, strict=True)]
        cells: list[RenderableType] = [texts[0], *bar, *(text for text in texts[1:] if text.plain)]
        grid.add_row(*cells)
        return grid
