"""Lists of bad words per language: the stage ``badwords``.

Source: C4 (Raffel et al., arXiv 1910.10683, section 2.2) drops pages with a word of a list; mC4 and the reference
implementations (TFDS ``c4_utils``, ``C4BadWordsFilter`` of datatrove 0.10) have lists per language and keep a fraction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from corpus.errors import UsageError
from corpus.stages import RecordStage, Rule, Signal, Stage, StageConfig, TextBatch, TextField, stage

if TYPE_CHECKING:
    import pyarrow as pa

    from filters.badword_lists import WordList

NOT_EMPTY = Field(min_length=1)


class BadwordsConfig(StageConfig):
    """Settings of ``badwords``. A list is a UTF-8 file with one word or phrase per line; # begins a comment."""

    words: dict[Annotated[str, NOT_EMPTY], Annotated[str, NOT_EMPTY]] = Field(
        default={}, description="File of words by label of the language stage, such as {en: badwords-en.txt}."
    )
    keep_fraction: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.0, description="Share of the texts with a listed word that stay, chosen by a hash of the text."
    )
    seed: int = Field(default=0, ge=0, lt=1 << 63, description="Another seed, another choice of what stays.")
    field: TextField | None = Field(default=None, description="Field that is judged; default the response of a pair.")


@stage("badwords")
class Badwords(RecordStage):
    """Drops texts that have a listed word or phrase.

    Words are those of ``corpus.text.words``, with two differences: punctuation marks and symbols are words by
    themselves, as in C4, which wants a listed word between characters that belong to no word; and capitals do not
    count (simple case folding). A phrase is found where its words follow each other, whatever white space is between.
    In scripts written without spaces each letter is a word, so entries are found anywhere, as in C4.

    Behind a ``language`` stage the list of a text's label counts, and a text of another language, or without a label,
    has no listed word. Where no such stage stands before, all lists count for every text.

    Of the texts with a listed word, ``keep_fraction`` stays: those whose ``draw``, a hash of the text in (0, 1], is at
    most the fraction. C4 draws at random there.

    What differs from datatrove 0.10 otherwise: it takes letters, digits and ``_`` for characters of words, here every
    character is one that is no white space, punctuation or symbol (``_`` is punctuation); it folds no more than lower
    case; it removes some entries from its Japanese and Chinese lists; and a language without a list is an error there,
    while here such a record stays.
    """

    Config = BadwordsConfig
    summary = "Lists of bad words per language; a fraction of the texts that have one can be kept."
    config: BadwordsConfig
    _lists: dict[str, WordList] | None = None
    _has_labels = False

    def bind(self, before: Sequence[Stage]) -> None:
        """Let labels say which list counts, where a language stage stands before."""
        self._has_labels = any("language" in stage.curated_columns() for stage in before)
        super().bind(before)

    def uses_languages(self) -> bool:
        """Say whether texts have labels."""
        return self._has_labels

    def signals(self) -> tuple[Signal, ...]:
        """Return what was found and the draw."""
        return (
            Signal("listed_words", "int64", "Words at which an entry of the lists begins."),
            Signal("listed", "string", "First entry found in the text; null if there is none."),
            Signal("draw", "float64", "Hash of the text in (0, 1]; null if it has no listed word."),
        )

    def rules(self) -> tuple[Rule, ...]:
        """Return the one rule."""
        return (Rule("keep_fraction", "draw", "at_most", float(self.config.keep_fraction)),)

    def fingerprint(self) -> Mapping[str, str]:
        """Return the SHA-256 of the lists. Raises UsageError if there is none, or one cannot be read."""
        from corpus.list_files import list_digest

        digests = {language: list_digest(path, setting) for language, path, setting in self._files()}
        return {"words": " ".join(f"{language}={digest}" for language, digest in sorted(digests.items()))}

    def prepare(self) -> None:
        """Read the lists. Raises UsageError if there is none, or one cannot be used."""
        from filters.badword_lists import read_word_list

        self._lists = {language: read_word_list(path, setting) for language, path, setting in self._files()}

    def measure(self, batch: TextBatch) -> dict[str, pa.Array]:
        """Return the three signals of each text."""
        import numpy as np
        import pyarrow as pa
        import xxhash

        from filters.badword_lists import find_in_batch
        from filters.counting import language_numbers

        if self._lists is None:
            raise RuntimeError("call prepare() before measure()")
        numbers = language_numbers(batch, list(self._lists))
        counts = np.zeros(len(batch), np.int64)
        listed: list[str | None] = [None] * len(batch)
        for number, words in enumerate(self._lists.values(), 1):
            rows = batch.alive if batch.languages is None else batch.alive & (numbers == number)
            more, entries = find_in_batch(batch.texts, rows, words)
            counts += more
            for row in np.flatnonzero(more).tolist():
                if listed[row] is None:
                    listed[row] = words.entries[entries[row]]
        draws: list[float | None] = [None] * len(batch)
        for row in np.flatnonzero(counts).tolist():
            text = batch.texts[row].as_buffer()
            draws[row] = (xxhash.xxh3_64_intdigest(text, self.config.seed) + 1) / (1 << 64)
        return {
            "listed_words": pa.array(counts),
            "listed": pa.array(listed, pa.string()),
            "draw": pa.array(draws, pa.float64()),
        }

    def _files(self) -> list[tuple[str, str, str]]:
        """Return (language, path, setting) of each list."""
        if not self.config.words:
            raise UsageError(f"{self.name}.words: no list is given; write, for example, words: {{en: badwords-en.txt}}")
        return [(language, path, f"{self.name}.words.{language}") for language, path in self.config.words.items()]
