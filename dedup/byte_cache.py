"""What a process keeps of the files of an object store: the last ones used, up to a number of bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable


class ByteCache:
    """Files by key, at most so many bytes in all, unless a single one has more; threads may share it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._files: OrderedDict[Hashable, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, read: Callable[[], bytes]) -> bytes:
        """Return the bytes of a key; ``read`` gives those that are not there."""
        with self._lock:
            if key in self._files:
                self._files.move_to_end(key)
                return self._files[key]
        data = read()
        with self._lock:
            if key not in self._files:
                self._files[key] = data
                self._size += len(data)
            while self._size > self._most and len(self._files) > 1:
                self._size -= len(self._files.popitem(last=False)[1])
        return data
