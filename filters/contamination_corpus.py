"""The stage ``contamination`` where n-grams that occur all over the corpus do not count.

Its record part searches the texts and leaves what it finds as packed evidence, one value per record, in the marks of
its pass. Then it is counted in how many sources each n-gram of the index occurs, and the verdict part judges the
evidence without those that occur in ``boilerplate`` sources or more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from corpus.stages import (
    CorpusStage,
    EditingStage,
    Judgement,
    RecordStage,
    Rule,
    Signal,
    StageConfig,
    TextBatch,
    TextField,
    VerdictPart,
)
from filters.contamination import Contamination, ContaminationConfig, ContaminationCut

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from filters.contamination_index import ContaminationIndex

LISTED = 100
"""N-grams set aside that the report shows."""


def evidence_signal(field: str) -> str:
    """Return the name of the signal with the packed evidence on a field."""
    return f"evidence_{field}"


def searched_fields(config: ContaminationConfig, text_field: TextField) -> tuple[TextField, ...]:
    """Return the fields that are searched by themselves."""
    return ("prompt", "response") if config.action == "cut" and text_field == "both" else (text_field,)


class ContaminationCorpus(CorpusStage):
    """The corpus stage; what it does is said by ``filters.contamination.Contamination``."""

    Config = ContaminationConfig
    summary = Contamination.summary
    needs_run = 'boilerplate counts sources over all records of a run; for a step of rows set boilerplate: "off"'
    config: ContaminationConfig

    def __init__(self, config: StageConfig, name: str, text_field: TextField) -> None:
        super().__init__(config, name, text_field)
        self._files = ContaminationEvidence(config, name, text_field)
        verdict_class = ContaminationCutVerdict if self.config.action == "cut" else ContaminationVerdict
        self._verdict = verdict_class(config, name, text_field)

    @property
    def limit(self) -> int:
        """Sources from which on an n-gram does not count."""
        assert self.config.boilerplate != "off"
        return self.config.boilerplate

    def record_part(self) -> RecordStage:
        """Return the stage that searches."""
        return ContaminationEvidence(self.config, self.name, self.text_field)

    def verdict_part(self) -> VerdictPart:
        """Return the stage that judges."""
        return type(self._verdict)(self.config, self.name, self.text_field)

    def signals(self) -> tuple[Signal, ...]:
        """Return the signals of the verdict."""
        return self._verdict.signals()

    def rules(self) -> tuple[Rule, ...]:
        """Return the rules of the verdict."""
        return self._verdict.rules()

    def fingerprint(self) -> Mapping[str, str]:
        """Return the digests of the suites."""
        return self._files.fingerprint()

    def prepare(self) -> None:
        """Build the index, or map it into memory. Raises UsageError."""
        self._files.prepare()

    def shuffled_bytes(self, rows: int) -> int:
        """Return what the sources of n-grams take if one record in ten holds a few."""
        return rows * 5

    def index(self) -> ContaminationIndex:
        """Return the index; call ``prepare`` first."""
        return self._files.index()

    def sources(self, file: str, records: pa.RecordBatch, marks: pa.RecordBatch, alive: npt.NDArray[np.bool_]) -> bytes:
        """Return which n-grams of the index occur in which sources of a batch, packed.

        Args:
            file: what counts as the source of records that have none.
            records: the batch's records.
            marks: with the signals of the record part.
            alive: the rows that enter the stage.
        """
        import pyarrow.compute as pc

        from corpus.hashing import value_hashes
        from filters.contamination_boilerplate import merge_sources, ngram_sources

        hashes = value_hashes(pc.fill_null(records.column("source"), file))
        packs = []
        for field in searched_fields(self.config, self.text_field):
            evidence = joined_evidence(marks.column(f"{self.name}.{evidence_signal(field)}"), alive)
            packs.append(ngram_sources(evidence, hashes, self.limit))
        return merge_sources(packs, self.limit)

    def found(self, aside: npt.NDArray[np.uint32]) -> tuple[bytes, dict[str, Any]]:
        """Return what the verdict part receives, and what the report says, given the n-grams that occur too often."""
        import numpy as np

        from filters.contamination_boilerplate import listed_ngrams

        index = self.index()
        more = listed_ngrams(index, self.config.boilerplate_file) if self.config.boilerplate_file else aside[:0]
        every = np.union1d(aside, more).astype(np.uint32)
        return every.tobytes(), {
            "boilerplate": {
                "ngrams": len(every),
                "by_list": len(np.setdiff1d(more, aside)),
                "sources": self.limit,
                "first": list(_examples(index, every)),
            }
        }


def _examples(index: ContaminationIndex, ngrams: npt.NDArray[np.uint32]) -> Iterator[dict[str, Any]]:
    """Yield the items and the place in them of the first n-grams set aside; the index has hashes, no words."""
    import numpy as np

    from filters.contamination_settings import NGRAM_TOKENS

    starts = index.postings[ngrams[:LISTED]].astype(np.int64)
    entries = np.searchsorted(index.entry_starts, starts, side="right") - 1
    for start, entry in zip(starts.tolist(), entries.tolist(), strict=True):
        item = int(index.items[int(index.entry_items[entry])])
        first = start - int(index.entry_starts[entry])
        yield {"item": index.item_name(item), "words": [first + 1, first + NGRAM_TOKENS]}


class ContaminationEvidence(Contamination):
    """The record part: searches, and judges nothing."""

    def signals(self) -> tuple[Signal, ...]:
        """Return the packed evidence on each field."""
        fields = searched_fields(self.config, self.text_field)
        return tuple(Signal(evidence_signal(field), "binary", "What was found, packed.") for field in fields)

    def rules(self) -> tuple[Rule, ...]:
        """Return none."""
        return ()

    def judge(self, batch: TextBatch) -> Judgement:
        """Return what was found."""
        from corpus.verdicts import entering_texts
        from filters.contamination_evidence import gather

        assert batch.records is not None
        signals = {}
        for field in searched_fields(self.config, self.text_field):
            texts = entering_texts(batch.records, field)
            evidence = gather(texts, batch.alive, self.index(), self.config.answer_distance)
            signals[evidence_signal(field)] = evidence_column(evidence, len(batch))
        return Judgement(signals)


class ContaminationVerdict(Contamination, VerdictPart):
    """The verdict part where nothing is cut."""

    _aside: npt.NDArray[np.bool_] | None = None

    def signal_columns(self) -> tuple[str, ...]:
        """Return the columns of the packed evidence."""
        fields = searched_fields(self.config, self.text_field)
        return (*super().signal_columns(), *(f"{self.name}.{evidence_signal(field)}" for field in fields))

    def receive(self, found: bytes) -> None:
        """Take the n-grams that do not count."""
        import numpy as np

        from filters.contamination_boilerplate import tokens_aside

        self._aside = tokens_aside(self.index(), np.frombuffer(found, np.uint32))

    def judge(self, batch: TextBatch) -> Judgement:
        """Return signals and spans, from the evidence."""
        from filters.contamination_findings import judgement

        if self._aside is None or batch.marks is None:
            raise RuntimeError("call receive() before judge()")
        column = batch.marks.column(f"{self.name}.{evidence_signal(batch.field)}")
        evidence = joined_evidence(column, batch.alive)
        return judgement(batch.texts, evidence, self.index(), self.config, self._aside)


class ContaminationCutVerdict(ContaminationVerdict, ContaminationCut):
    """The verdict part with the action ``cut``."""

    def signals(self) -> tuple[Signal, ...]:
        """Return own signals, then those of the edits."""
        return EditingStage.signals(self)

    def rules(self) -> tuple[Rule, ...]:
        """Return own rules, then that an edit must leave some text."""
        return EditingStage.rules(self)


def evidence_column(evidence: Any, length: int) -> pa.BinaryArray:
    """Return the evidence on n records as one value per record, null where nothing was found."""
    import numpy as np
    import pyarrow as pa

    values: list[bytes | None] = [None] * length
    for row in np.union1d(evidence.ngram_rows, evidence.rows).tolist():
        values[row] = evidence.of_row(row).packed()
    return pa.array(values, pa.binary())


def joined_evidence(column: pa.Array, rows: npt.NDArray[np.bool_]) -> Any:
    """Return the evidence of the chosen records, from one packed value per record."""
    from filters.contamination_evidence import Evidence

    valid = column.is_valid().to_numpy(zero_copy_only=False)
    chosen: Sequence[int] = (valid & rows).nonzero()[0].tolist()
    return Evidence.joined([Evidence.unpacked(column[row].as_py()) for row in chosen], chosen)
