"""Learning to Execute: short Python programs and what they print."""

from gfrnn.tasks.programs.generator import SPLITS, Program, make, split_of, stream
from gfrnn.tasks.programs.settings import CURRICULA, Settings

__all__ = ["CURRICULA", "SPLITS", "Program", "Settings", "make", "split_of", "stream"]
