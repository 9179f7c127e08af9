"""Find the components of more records than one process holds: one job per round over the staged edges.

``dedup.components`` has the rounds. Each job reads the pairs of its partitions from staging and writes those of the
next round; the driver starts jobs until nothing changes, which takes about as many rounds as the logarithm of the
longest chain. Beam has no loops, and the number of rounds is not known before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import apache_beam as beam

from corpus.errors import ThresherError
from corpus.folder import Folder
from dedup import components
from dedup.duplicates import DuplicateStage
from dedup.staged import components_name, edge_files, overflow_name, pairs_name
from dedup.verification import read_edges
from pipelines.combining import Sum

Keyed = tuple[int, bytes]

MOST_ROUNDS = 64


@dataclass(frozen=True)
class Rounds:
    """What the steps of a round need to know.

    Attributes:
        folder: the run folder.
        stage: name of the stage.
        number: of the round whose pairs are read.
        partitions: into how many the pairs are cut.
    """

    folder: Folder
    stage: str
    number: int
    partitions: int

    def pairs(self, part: int) -> bytes:
        """Return the pairs of a partition, none where it has no file."""
        name = pairs_name(self.stage, self.number, part)
        return self.folder.read_bytes(name) if self.folder.exists(name) else b""


class RoundStep(beam.DoFn):  # type: ignore[misc]
    """A step of a round."""

    def __init__(self, rounds: Rounds) -> None:
        self.rounds = rounds


class ListEdges(RoundStep):
    """Impulse -> (number, index of a file with edges)."""

    def process(self, element: bytes) -> Iterator[tuple[int, int]]:
        """List all files."""
        for index in range(len(edge_files(self.rounds.folder, self.rounds.stage))):
            yield index, index


class SpreadEdges(RoundStep):
    """(Number, index of a file with edges) -> (partition, pairs)."""

    def setup(self) -> None:
        """List the files: the names say which index each has."""
        self.names = edge_files(self.rounds.folder, self.rounds.stage)

    def process(self, element: tuple[int, Iterable[int]]) -> Iterator[Keyed]:
        """Spread the edges of one file."""
        for index in element[1]:
            table, _, _ = read_edges(self.rounds.folder, self.names[index])
            yield from components.spread([components.pack_pairs(table[:, 0], table[:, 1])], self.rounds.partitions)


class ListPartitions(RoundStep):
    """Impulse -> (partition, partition)."""

    def process(self, element: bytes) -> Iterator[tuple[int, int]]:
        """List all partitions."""
        yield from ((part, part) for part in range(self.rounds.partitions))


class Ask(RoundStep):
    """(Partition, itself) -> (partition asked, questions)."""

    def process(self, element: tuple[int, Iterable[int]]) -> Iterator[Keyed]:
        """Ask for the nodes that the pairs lead to."""
        part = element[0]
        yield from components.ask(part, [self.rounds.pairs(part)], self.rounds.partitions)


class Answer(RoundStep):
    """(Partition asked, questions) -> (partition that asked, answers)."""

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[Keyed]:
        """Answer from the pairs of one partition."""
        yield from components.answer([self.rounds.pairs(element[0])], element[1])


class Follow(RoundStep):
    """(Partition, answers) -> (partition, pairs of the next round); the number of changes."""

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[Keyed | beam.pvalue.TaggedOutput]:
        """Replace what the pairs lead to."""
        followed, changes = components.follow([self.rounds.pairs(element[0])], element[1])
        yield beam.pvalue.TaggedOutput("changes", changes)
        yield from components.spread([followed], self.rounds.partitions)


class WritePairs(RoundStep):
    """(Partition, pairs) -> writes them as those of the next round."""

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[int]:
        """Write one partition."""
        part, pairs = element
        forest = components.spanning_forest(pairs)
        self.rounds.folder.write_bytes(pairs_name(self.rounds.stage, self.rounds.number + 1, part), forest)
        yield len(forest)


class WriteChanges(RoundStep):
    """The sum of the changes -> the file that has it."""

    def process(self, element: int) -> Iterator[int]:
        """Write the file."""
        self.rounds.folder.write_bytes(changes_name(self.rounds.stage, self.rounds.number), str(element).encode())
        yield element


def changes_name(stage: str, number: int) -> str:
    """Return the name of the file with the number of changes of a round."""
    return f"staging/near-{stage}/changes-{number}.json"


def _begin(pipeline: beam.Pipeline, rounds: Rounds) -> None:
    """Make the pairs that the first round starts with out of the staged edges."""
    _ = (
        pipeline
        | "Start" >> beam.Impulse()
        | "Files of edges" >> beam.ParDo(ListEdges(rounds)).with_output_types(tuple[int, int])
        | "Spread files" >> beam.GroupByKey()
        | "Edges" >> beam.ParDo(SpreadEdges(rounds)).with_output_types(Keyed)
        | "Pairs by partition" >> beam.GroupByKey()
        | "Write pairs" >> beam.ParDo(WritePairs(rounds)).with_output_types(int)
    )


def _round(pipeline: beam.Pipeline, rounds: Rounds) -> None:
    """Make the pairs of the next round."""
    followed = (
        pipeline
        | "Start" >> beam.Impulse()
        | "Partitions" >> beam.ParDo(ListPartitions(rounds)).with_output_types(tuple[int, int])
        | "Spread partitions" >> beam.GroupByKey()
        | "Ask" >> beam.ParDo(Ask(rounds)).with_output_types(Keyed)
        | "Questions" >> beam.GroupByKey()
        | "Answer" >> beam.ParDo(Answer(rounds)).with_output_types(Keyed)
        | "Answers" >> beam.GroupByKey()
        | "Follow"
        >> beam.ParDo(Follow(rounds)).with_output_types(Keyed, changes=int).with_outputs("changes", main="pairs")
    )
    _ = (
        followed["pairs"]
        | "Pairs by partition" >> beam.GroupByKey()
        | "Write pairs" >> beam.ParDo(WritePairs(rounds)).with_output_types(int)
    )
    _ = (
        followed["changes"]
        | "All changes" >> beam.CombineGlobally(Sum())
        | "Write changes" >> beam.ParDo(WriteChanges(rounds)).with_output_types(int)
    )


def find_components(
    folder: Folder,
    stage: DuplicateStage,
    partitions: int,
    run_job: Callable[[Callable[[beam.Pipeline], None]], None],
) -> None:
    """Find the components of a stage's staged edges, job by job, and write the file that says where they are.

    Args:
        run_job: runs the pipeline that a function builds, and waits for its end.

    Raises:
        ThresherError: they were not found in ``MOST_ROUNDS`` rounds.
    """
    name = stage.name
    # What a job writes does not say that the whole job is done; these do.
    done = [f"staging/near-{name}/done-{number}.json" for number in range(MOST_ROUNDS + 1)]
    if not folder.exists(done[0]):
        run_job(lambda pipeline: _begin(pipeline, Rounds(folder, name, -1, partitions)))
        folder.write_bytes(done[0], b"{}")
    for number in range(MOST_ROUNDS):
        if not folder.exists(done[number + 1]):
            rounds = Rounds(folder, name, number, partitions)
            run_job(lambda pipeline, rounds=rounds: _round(pipeline, rounds))  # type: ignore[misc]
            folder.write_bytes(done[number + 1], b"{}")
        if int(folder.read_bytes(changes_name(name, number))) == 0:
            found = {"round": number + 1, "partitions": partitions}
            folder.write_bytes(components_name(name), json.dumps(found).encode())
            return
    raise ThresherError(f"{name}: the clusters were not found in {MOST_ROUNDS} rounds; run the same command again")


def overflown(folder: Folder, stages: Iterable[object]) -> DuplicateStage | None:
    """Return the stage whose forest was too large in the job that has just failed, None where there is none."""
    for stage in stages:
        if not isinstance(stage, DuplicateStage) or not folder.exists(overflow_name(stage.name)):
            continue
        if not folder.exists(components_name(stage.name)):
            return stage
    return None
