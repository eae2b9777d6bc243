"""Memory that a training step frees is kept for the next one."""

import ctypes
import sys

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4  # malloc.h


def keep_freed_memory() -> bool:
    """Ask glibc not to hand large blocks back to the system when they are freed; False where there is no glibc.

    Every step needs the same large blocks again. By default each is mapped anew, and the system clears it page by page
    at the first touch: measured, a tenth of the training step. This holds for the whole process, so only programs call
    it (`gfrnn train`, `eval`, `bench`), never the library. Call it before the first large allocation.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, 2**31 - 1) and mallopt(M_TOP_PAD, 64 << 20))
