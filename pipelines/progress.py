"""Progress of a run, read from its folder: works the same for local and remote runs."""

from __future__ import annotations

import threading
import time
from types import TracebackType

import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from corpus.folder import Folder
from corpus.staging import progress_names


class ProgressBar:
    """A bar of items done with records and rate on a terminal; does nothing where the console is not one."""

    def __init__(self, root: str, items: int, console: Console) -> None:
        self._folder = Folder(root)
        self._console = console
        self._interval = 0.5 if self._folder.is_local else 5.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._items = items
        self._records: dict[str, int] = {}

    def __enter__(self) -> ProgressBar:
        if self._console.is_terminal:
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread:
            self._thread.join()

    def _watch(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TaskProgressColumn())
        started = time.monotonic()
        with Progress(
            *columns, TextColumn("{task.fields[detail]}"), TimeElapsedColumn(), console=self._console, transient=True
        ) as progress:
            task = progress.add_task("items", total=self._items, detail="")
            while not self._stop.wait(self._interval):
                done = self._update()
                records = sum(self._records.values())
                rate = records / (time.monotonic() - started)
                written = len(self._folder.names("staging/done"))
                detail = f"{records:,} records, {rate:,.0f}/s" + (f", {written:,} outputs" if written else "")
                progress.update(task, completed=done, detail=detail)

    def _update(self) -> int:
        done = 0
        for name, ends_item in progress_names(self._folder):
            done += ends_item
            if name not in self._records:
                with self._folder.open_arrow(name) as file:
                    metadata = pa.ipc.open_file(file).schema.metadata or {}
                self._records[name] = int(metadata.get(b"rows", 0))
        return done
