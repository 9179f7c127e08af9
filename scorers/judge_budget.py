"""How much a judge may cost: calls and tokens, counted for one start of a run on one machine."""

from __future__ import annotations

import fcntl
import os
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_COUNTS = struct.Struct("<3q")


@dataclass
class Spent:
    """What was spent.

    Attributes:
        calls: requests sent.
        tokens: tokens of questions and answers, as the server counts them.
        reserved: what the requests under way may cost, as estimated before.
    """

    calls: int = 0
    tokens: int = 0
    reserved: int = 0


class Budget:
    """What may be spent. An object serves one thread.

    Args:
        max_calls: requests that may be sent, those that are repeated included; None without a limit.
        max_tokens: tokens of questions and answers; None without a limit.
        file: where the processes of a machine count together; None to count here.
    """

    def __init__(self, max_calls: int | None, max_tokens: int | None, file: Path | None = None) -> None:
        self.max_calls = max_calls
        self.max_tokens = max_tokens
        self._file = file
        self._spent = Spent()

    def take(self, estimate: int) -> bool:
        """Count a request that may cost so many tokens, if it is within the limits; say whether it is."""
        with self._counts() as spent:
            if self.max_calls is not None and spent.calls >= self.max_calls:
                return False
            if self.max_tokens is not None and spent.tokens + spent.reserved + estimate > self.max_tokens:
                return False
            spent.calls += 1
            spent.reserved += estimate
            return True

    def settle(self, estimate: int, tokens: int) -> None:
        """Count the tokens that a request has cost in the place of their estimate."""
        with self._counts() as spent:
            spent.reserved -= estimate
            spent.tokens += tokens

    def spent(self) -> Spent:
        """Return what was spent so far."""
        with self._counts() as spent:
            return spent

    @contextmanager
    def _counts(self) -> Iterator[Spent]:
        """Give the counts, to be changed; no other process changes them meanwhile."""
        if self._file is None:
            yield self._spent
            return
        descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            data = os.pread(descriptor, _COUNTS.size, 0)
            spent = Spent(*_COUNTS.unpack(data)) if data else Spent()
            yield spent
            os.pwrite(descriptor, _COUNTS.pack(spent.calls, spent.tokens, spent.reserved), 0)
        finally:
            os.close(descriptor)


def counting_file(run: str, name: str) -> Path:
    """Return the file in which the processes of this machine count for a stage of a run, in the temporary folder."""
    return Path(tempfile.gettempdir()) / f"thresher-budget-{run}-{name}"
