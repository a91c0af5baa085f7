"""Lines out of pieces that are cut anywhere."""

from __future__ import annotations

__all__ = ["Lines"]


class Lines:
    """Collects pieces and gives the lines that are whole.

    >>> lines = Lines()
    >>> lines.take(b"one\\ntw"), lines.take(b"o"), lines.take(b"\\r\\nthr"), lines.rest()
    ([b'one'], [], [b'two'], b'thr')
    """

    def __init__(self) -> None:
        self.size = 0  # bytes that were taken
        self._begun: list[bytes] = []

    def take(self, piece: bytes) -> list[bytes]:
        self.size += len(piece)
        if b"\n" not in piece:
            self._begun.append(piece)
            return []
        *whole, begun = b"".join([*self._begun, piece]).split(b"\n")
        self._begun = [begun]
        return [line.removesuffix(b"\r") for line in whole]

    def rest(self) -> bytes:
        """What came after the last whole line."""
        return b"".join(self._begun)
