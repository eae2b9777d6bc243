"""Learning to Execute: short Python programs and what they print."""

from gfrnn.tasks.programs.command import main
from gfrnn.tasks.programs.generator import CURRICULA, SPLITS, Program, Settings, make, split_of, stream

__all__ = ["CURRICULA", "SPLITS", "Program", "Settings", "main", "make", "split_of", "stream"]
