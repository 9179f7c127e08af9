"""The Beam steps of an exact selection: which records are kept within the limits of their groups.

``corpus.selection`` has the functions and their bounds; each step here calls one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam import pvalue

from corpus import selection
from corpus.batch_layout import ROW_BITS
from corpus.selection_entries import Entries
from corpus.selection_keys import Integers
from pipelines.combining import MergeSamples, MergeTotals

Limits = Callable[[bytes], tuple[Integers, Integers]]


class Start(beam.DoFn):  # type: ignore[misc]
    """Impulse, with the totals of the entries and what the limits follow from -> the search before the first round."""

    def __init__(self, limits: Limits, width: int) -> None:
        self.limits = limits
        self.width = width

    def process(self, element: bytes, all_totals: bytes, basis: bytes) -> Iterator[bytes]:
        """Start the search."""
        groups, limits = self.limits(basis)
        yield selection.start(all_totals, groups, limits, self.width)


class Call(beam.DoFn):  # type: ignore[misc]
    """Element and side inputs, all bytes -> what a function of ``corpus.selection`` makes of them."""

    def __init__(self, name: str) -> None:
        self.name = name

    # Not *sides: Beam takes the type of those to be that of their tuple.
    def process(self, element: bytes, first: bytes | None = None, second: bytes | None = None) -> Iterator[bytes]:
        """Call the function."""
        sides = [side for side in (first, second) if side is not None]
        yield getattr(selection, self.name)(element, *sides)


class Gather(beam.DoFn):  # type: ignore[misc]
    """Entries -> (shard, entries that are left between boundaries)."""

    def process(self, element: bytes, search: bytes) -> Iterator[tuple[int, bytes]]:
        """Gather one partition."""
        yield from selection.gather(element, search)


class Resolve(beam.DoFn):  # type: ignore[misc]
    """(Shard, its entries) -> the cuts of its groups."""

    def process(self, element: tuple[int, Iterable[bytes]], search: bytes) -> Iterator[bytes]:
        """Resolve one shard."""
        yield selection.resolve(element[1], search)


class Finish(beam.DoFn):  # type: ignore[misc]
    """Search, with all cuts -> the selection."""

    def process(self, element: bytes, cuts: Iterable[bytes]) -> Iterator[bytes]:
        """Finish the search."""
        yield selection.finish(element, cuts)


class Select(beam.DoFn):  # type: ignore[misc]
    """Entries, with the selection -> (batch key, packed row ids that are kept)."""

    def process(self, element: bytes, chosen: bytes) -> Iterator[tuple[int, bytes]]:
        """Select from one partition."""
        kept = Entries.unpack(element).row_ids[selection.select(element, chosen)]
        keys = kept >> ROW_BITS
        for key in np.unique(keys).tolist():
            yield key, kept[keys == key].tobytes()


def _one(step: beam.DoFn) -> Any:
    return lambda *sides: beam.ParDo(step, *map(pvalue.AsSingleton, sides)).with_output_types(bytes)


@dataclass(frozen=True)
class Selecting:
    """How to select.

    Attributes:
        label: of all steps.
        limits: (groups, limits) as ``corpus.selection.start`` takes them, for the sum of ``basis``; can be pickled.
        width: words per key.
        records: most entries that there can be, for the number of rounds.
    """

    label: str
    limits: Limits
    width: int
    records: int

    def apply(self, entries: beam.PCollection, basis: beam.PCollection) -> beam.PCollection:
        """Return (batch key, packed row ids that are kept); the arguments are those of ``choose``."""
        chosen = self.choose(entries, basis)
        selecting = beam.ParDo(Select(), pvalue.AsSingleton(chosen)).with_output_types(tuple[int, bytes])
        return entries | f"{self.label}: select" >> selecting

    def choose(self, entries: beam.PCollection, basis: beam.PCollection) -> beam.PCollection:
        """Return the selection, one element, as ``corpus.selection.select`` takes it.

        Args:
            entries: packed entries, a partition each.
            basis: packed totals that add up to what the limits follow from.
        """
        label = self.label
        all_totals = (
            entries
            | f"{label}: totals" >> _one(Call("totals"))()
            | f"{label}: all totals" >> beam.CombineGlobally(MergeTotals())
        )
        basis = basis | f"{label}: basis" >> beam.CombineGlobally(MergeTotals())
        search = (
            entries.pipeline
            | f"{label}: begin" >> beam.Impulse()
            | f"{label}: start" >> _one(Start(self.limits, self.width))(all_totals, basis)
        )
        for number in range(1, selection.rounds_needed(self.records) + 1):
            name = f"{label}: round {number}"
            samples = (
                entries
                | f"{name}: sample" >> _one(Call("sample"))(search)
                | f"{name}: samples" >> beam.CombineGlobally(MergeSamples(self.width))
            )
            splitters = search | f"{name}: split" >> _one(Call("split"))(samples)
            counts = (
                entries
                | f"{name}: count" >> _one(Call("count"))(splitters)
                | f"{name}: counts" >> beam.CombineGlobally(MergeTotals())
            )
            search = search | f"{name}: narrow" >> _one(Call("narrow"))(splitters, counts)
        gathering = beam.ParDo(Gather(), pvalue.AsSingleton(search)).with_output_types(tuple[int, bytes])
        cuts = (
            entries
            | f"{label}: gather" >> gathering
            | f"{label}: by shard" >> beam.GroupByKey()
            | f"{label}: cuts" >> _one(Resolve())(search)
        )
        finishing = beam.ParDo(Finish(), pvalue.AsIter(cuts)).with_output_types(bytes)
        return search | f"{label}: finish" >> finishing
