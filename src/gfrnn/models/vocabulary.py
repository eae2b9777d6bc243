"""Bytes to symbol numbers and back."""

import numpy as np

from gfrnn.errors import DataError

# The 205 byte values that occur in enwik8, all of them in its first 90 MB: what a character model knows by default.
ENWIK8 = bytes(
    byte
    for first, last in ((9, 10), (32, 126), (128, 191), (194, 220), (222, 222), (224, 237), (239, 240))
    for byte in range(first, last + 1)
)
STAND_IN = b"?"
CHUNK = 1 << 24


class Vocabulary:
    """The byte values a model knows; symbol k is the k-th of them.

    >>> letters = Vocabulary(b"abc?")
    >>> letters.encode(b"cab")
    array([2, 0, 1], dtype=uint8)
    >>> letters.decode([2, 0, 1])
    b'cab'
    """

    def __init__(self, symbols: bytes | None = None) -> None:
        self.symbols = ENWIK8 if symbols is None else bytes(symbols)
        if not self.symbols or len(set(self.symbols)) != len(self.symbols):
            raise ValueError("a vocabulary is one or more bytes, each once")
        self._bytes = np.frombuffer(self.symbols, dtype=np.uint8)
        self._numbers = np.zeros(256, dtype=np.uint8)
        self._numbers[self._bytes] = np.arange(len(self.symbols), dtype=np.uint8)
        self.known = np.zeros(256, dtype=bool)
        self.known[self._bytes] = True

    def __len__(self) -> int:
        return len(self.symbols)

    def encode(self, text: bytes | np.ndarray, name: str = "the text", unknown: str = "refuse") -> np.ndarray:
        """Symbol numbers, uint8. A byte that is not known is refused, or replaced by '?' (unknown="replace")."""
        data = np.frombuffer(text, dtype=np.uint8) if isinstance(text, bytes | bytearray) else text
        return self.numbers(unknown)[data] if unknown == "replace" else self._numbers[self.check(data, name)]

    def numbers(self, unknown: str = "refuse") -> np.ndarray:
        """The table of 256 symbol numbers; what is not known counts as '?' (as symbol 0 where there is no '?')."""
        if unknown == "refuse":
            return self._numbers
        return np.where(self.known, self._numbers, self._numbers[STAND_IN[0]])

    def check(self, data: np.ndarray, name: str = "the text") -> np.ndarray:
        """`data`, if every byte is known."""
        for start in range(0, len(data), CHUNK):
            known = self.known[data[start : start + CHUNK]]
            if not known.all():
                offset = start + int(np.argmin(known))
                byte = int(data[offset])
                shown = f" ({chr(byte)!r})" if byte < 128 else ""
                raise DataError(
                    f"{name} has the byte 0x{byte:02x}{shown} at offset {offset}, which is not among the model's "
                    f"{len(self)} symbols (--unknown replace reads such bytes as '?')"
                )
        return data

    def count_unknown(self, data: np.ndarray) -> int:
        return sum(int((~self.known[data[i : i + CHUNK]]).sum()) for i in range(0, len(data), CHUNK))

    def decode(self, numbers: "np.ndarray | list[int]") -> bytes:
        return self._bytes[np.asarray(numbers, dtype=np.int64)].tobytes()
