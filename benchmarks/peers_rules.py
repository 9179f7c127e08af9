"""A process that runs the quality rules of datatrove, dolma or data-juicer on texts, in an environment of its own.

    python benchmarks/peers_rules.py CONTENDER TEXTS

CONTENDER is ``datatrove`` (as it is installed), ``datatrove-plain`` (words by ``str.split``, a line is one sentence),
``dolma`` or ``data-juicer``; TEXTS is a JSON file with a list. Nothing of Thresher is imported here. Each line of input
has it go over the texts: one by one with all filters in turn, so that datatrove's cache of split texts serves, or in
data-juicer's batches. The answer has ``seconds`` of the processor and ``reasons``: for each filter and text the reason
for the drop, null for a text that stays or is only measured.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

Judge = Callable[[str], "str | None"]
Reasons = dict[str, "list[str | None]"]
Run = Callable[[list[str]], Reasons]


def datatrove_filters(plain: bool) -> dict[str, Judge]:
    """Return the four filters of datatrove with its own defaults, named as our stages are."""
    from datatrove.data import Document
    from datatrove.pipeline.filters import c4_filters, fineweb_quality_filter, gopher_quality_filter
    from datatrove.pipeline.filters import gopher_repetition_filter as repetition_filter

    if plain:
        for module in (gopher_quality_filter, repetition_filter, fineweb_quality_filter):
            module.split_into_words = lambda text, language: text.split()
        c4_filters.split_into_sentences = lambda text, language: [text]

    def judged_by(judge: object) -> Judge:
        def judged(text: str) -> str | None:
            result = judge.filter(Document(text=text, id=""))  # type: ignore[attr-defined]
            return None if result is True else str(result[1])

        return judged

    filters = {
        "gopher_quality": gopher_quality_filter.GopherQualityFilter(),
        "gopher_repetition": repetition_filter.GopherRepetitionFilter(),
        "fineweb_quality": fineweb_quality_filter.FineWebQualityFilter(),
        "c4_quality": c4_filters.C4QualityFilter(),
    }
    return {name: judged_by(judge) for name, judge in filters.items()}


def dolma_taggers() -> dict[str, Judge]:
    """Return dolma's taggers for the rules of Gopher and C4, which measure and do not judge.

    Its list of bad words, most of the time of the C4 tagger, is left empty: it is no rule of our ``c4_quality``.
    """
    from dolma.core.data_types import Document  # type: ignore[import-not-found, unused-ignore]
    from dolma.taggers import c4  # type: ignore[import-not-found, unused-ignore]
    from dolma.taggers.gopher import GopherTagger  # type: ignore[import-not-found, unused-ignore]

    c4.NAUGHTY_WORDS = c4.NAUGHTY_PHRASES = set()

    def measured_by(tagger: object) -> Judge:
        def measured(text: str) -> None:
            tagger.predict(Document(source="", id="", text=text))  # type: ignore[attr-defined]

        return measured

    return {"gopher": measured_by(GopherTagger()), "c4_quality": measured_by(c4.C4Tagger())}


def one_by_one(judges: dict[str, Judge]) -> Run:
    """Return what takes the texts in turn."""

    def run(texts: list[str]) -> Reasons:
        reasons: Reasons = {name: [] for name in judges}
        for text in texts:
            for name, judge in judges.items():
                reasons[name].append(judge(text))
        return reasons

    return run


def data_juicer_filters() -> Run:
    """Return what runs those filters of data-juicer that come nearest, with its own defaults and words between spaces.

    They are fewer and simpler: words, repeated runs of ten words and of ten characters, special and alphanumeric
    characters, lengths of lines and of the text.
    """
    from data_juicer.ops import filter as ops  # type: ignore[import-not-found, unused-ignore]
    from data_juicer.utils.constant import Fields  # type: ignore[import-not-found, unused-ignore]

    filters = {
        "words": ops.WordsNumFilter(),
        "word_repetition": ops.WordRepetitionFilter(),
        "character_repetition": ops.CharacterRepetitionFilter(),
        "special_characters": ops.SpecialCharactersFilter(),
        "alphanumeric": ops.AlphanumericFilter(),
        "average_line_length": ops.AverageLineLengthFilter(),
        "maximum_line_length": ops.MaximumLineLengthFilter(),
        "text_length": ops.TextLengthFilter(),
    }

    def run(texts: list[str]) -> Reasons:
        samples = {"text": texts, Fields.stats: [{} for _ in texts]}
        reasons: Reasons = {}
        for name, one in filters.items():
            one.compute_stats_batched(samples)
            reasons[name] = [None if stays else name for stays in one.process_batched(samples)]
        return reasons

    return run


def made(contender: str) -> Run:
    """Return what runs the filters of a contender over texts."""
    if contender == "data-juicer":
        return data_juicer_filters()
    return one_by_one(dolma_taggers() if contender == "dolma" else datatrove_filters(contender == "datatrove-plain"))


def main() -> None:
    """Answer until the input ends; what tools print goes to the standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    contender, path = sys.argv[1:]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    texts: list[str] = json.loads(Path(path).read_text(encoding="utf-8"))
    run = made(contender)
    run(texts[:1])
    print("ready", file=answers, flush=True)
    for _ in sys.stdin:
        begin = time.process_time()
        reasons = run(texts)
        seconds = time.process_time() - begin
        print(json.dumps({"seconds": seconds, "reasons": reasons}), file=answers, flush=True)


if __name__ == "__main__":
    main()
