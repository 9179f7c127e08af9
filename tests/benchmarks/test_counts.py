"""What the benchmarks count: documents, agreement, and what a tool for near-duplicates missed or lost."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.near_duplicates import quality, true_pairs, unproven_leaders, write_input
from benchmarks.presets import C4, FINEWEB, REPETITION, compared, fineweb_counts
from benchmarks.rules import STAGES, agreement, families, joined_texts, our_reasons, second_to_first
from filters.c4_rules import READINGS
from filters.fineweb_counts import count_text as fineweb_text
from filters.repetition_kernel import COUNTS as REPETITION_COUNTS

IDS = ["a", "b", "c", "d", "e"]
TEXTS = ["one", "two", "three", "four", "one"]
PAIRS = [("a", "b", 0.85), ("b", "c", 0.95), ("c", "d", 0.8)]


@pytest.mark.parametrize(
    ("removed", "both_kept", "high", "lost"),
    [
        ([], 3, 1, 0),
        (["b", "d", "e"], 0, 0, 0),
        (["a", "c"], 0, 0, 0),
        (["b", "c"], 0, 0, 0),
        (["b", "c", "d"], 0, 0, 2),
        (["a", "b", "c", "d", "e"], 0, 0, 5),
        (["d"], 2, 1, 0),
    ],
)
def test_quality_counts_pairs_and_removals_without_a_reason(
    removed: list[str], both_kept: int, high: int, lost: int
) -> None:
    found = quality(IDS, TEXTS, PAIRS, removed)
    assert found == {
        "pairs": 3,
        "both_kept": both_kept,
        "both_kept_at_0.9": high,
        "removed": len(removed),
        "removed_without_kept_similar": lost,
    }


def test_a_leader_must_stay_and_be_similar_or_equal() -> None:
    assert unproven_leaders(IDS, TEXTS, PAIRS, ["b", "e"], ["c", "a"]) == 0
    assert unproven_leaders(IDS, TEXTS, PAIRS, ["b", "e"], ["d", "c"]) == 2
    assert unproven_leaders(IDS, TEXTS, PAIRS, ["b", "c"], ["c", "d"]) == 1


def test_input_and_truth_are_checked(tmp_path: Path) -> None:
    corpus, target = tmp_path / "corpus", tmp_path / "input"
    corpus.mkdir()
    with pytest.raises(SystemExit, match="no Parquet file"):
        write_input(corpus, target)
    pq.write_table(pa.table({"id": [1, 2, 3], "text": ["x", " \n", "y"]}), corpus / "a.parquet")
    assert write_input(corpus, target) == (["1", "3"], ["x", "y"])
    assert pq.read_table(target)["text"].to_pylist() == ["x", "y"]
    truth = tmp_path / "truth.parquet"
    pq.write_table(pa.table({"id_a": ["1", "1"], "id_b": ["3", "3"], "jaccard": [0.79, 0.8]}), truth)
    assert true_pairs(["1", "3"], ["x", "y"], truth) == [("1", "3", 0.8)]
    with pytest.raises(SystemExit, match="not in the corpus, for example 3"):
        true_pairs(["1"], ["x"], truth)
    pq.write_table(pa.table({"id": [1], "text": ["z"]}), corpus / "b.parquet")
    with pytest.raises(SystemExit, match="ids must be unique"):
        write_input(corpus, target)
    pq.write_table(pa.table({"id": [9], "content": ["z"]}), corpus / "b.parquet")
    with pytest.raises(SystemExit, match="no column text"):
        write_input(corpus, target)


def test_documents_are_joined_within_a_source() -> None:
    texts = ["aaa", "bbb", "cc", "dddddd", "e"]
    assert [*joined_texts(texts, ["x", "x", "x", "y", "y"], 8)] == ["aaa\n\nbbb", "dddddd"]


def test_agreement_compares_verdict_and_reason() -> None:
    ours: dict[str, list[str | None]] = {name: [None, "minimum_words", "minimum_words", None] for name in STAGES}
    theirs: dict[str, list[str | None]] = {
        name: [None, "gopher_short_doc", "gopher_too_many_hashes", "line_punct_ratio"] for name in STAGES
    }
    found = agreement(ours, theirs)["gopher_quality"]
    assert found == {"documents": 4, "dropped_by_datatrove": 3, "same_verdict": 3, "same_reason": 2}


def test_a_second_family_is_a_share_of_the_first() -> None:
    seconds = {family: float(len(family.split("+"))) for family in families()}
    shares = second_to_first(seconds)
    assert shares["gopher"] == {"fineweb": 0.5, "c4": 0.5}
    assert shares["c4_quality"] == dict.fromkeys(("gopher_quality", "gopher_repetition", "fineweb_quality"), 1.0)


def test_all_stages_judge_the_text_that_enters() -> None:
    sentence = "The cat and the dog have to be with that friend of mine all day. "
    texts = [sentence, f"{sentence} {{\n" * 9]
    found = our_reasons(texts)
    assert list(found) == list(STAGES)
    assert found["gopher_quality"] == ["minimum_words", None]
    assert found["c4_quality"] == ["minimum_sentences", "minimum_sentences"]


TEXTS_OF_PRESETS = [
    "A line here.\r\nAnother line here.\r\nA line here.\r\n",
    "\n  indented\n  indented\nnot so\n\u2028 \x85end",
    "• • • ◦ “quoted” €",
    "The first line is here. [1]\nIt ends so (it does).\nIt goes on and on “so”\nFour words are here.\nFive of them.",
    "",
]


def test_presets_meet_where_all_differences_are_made_or_none() -> None:
    for text in TEXTS_OF_PRESETS:
        assert fineweb_counts(text, []) == fineweb_text(text, "datatrove-0.10", 30)
        assert fineweb_counts(text, FINEWEB) == fineweb_text(text, "thresher-1", 30)
    ours, theirs = (READINGS[preset] for preset in ("thresher-1", "datatrove-0.10"))
    fields = {field for difference in C4.values() for field in difference}
    assert replace(theirs, **{field: getattr(ours, field) for field in fields}) == ours
    assert {name for names in REPETITION.values() for name in names} == set(REPETITION_COUNTS)


def test_records_on_which_presets_differ_are_counted() -> None:
    repeated, bracketed = "one two three four five six\n" * 3, "One line of them ends (like this.)\n" * 6
    found = compared([[*TEXTS_OF_PRESETS[:4], repeated], [bracketed, "a b c d e f g h"]])
    assert {counts["records"] for counts in found.values()} == {7}
    assert found["c4_quality"] == {
        "records": 7,
        "dropped by datatrove-0.10": 7,
        "dropped there only": 2,
        "by end marks and closing brackets alone": 1,
        **dict.fromkeys([f"by {difference} alone" for difference in list(C4)[1:]], 0),
        "by several together": 1,
    }
    # The first run of a text of eight different words is taken for a repetition there.
    assert found["gopher_repetition"]["by most frequent run alone"] >= 1
