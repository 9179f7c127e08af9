"""What the report says of rules: which records fail them, alone or together, under which limits, with which notices."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.corpora import ENGLISH, GERMAN, report, run, table, write_config

Row = Mapping[str, Any]
# Stage, rule, the signal that it limits, and whether a value fails; "" begins another pass.
Rules = list[tuple[str, str, str, Callable[[Any], bool]]]

STAGES: list[Any] = [
    {"language": {"keep": ["en"], "minimum_score": 0.96}},
    {"gopher_quality": {"minimum_words": 30, "minimum_stop_words": 4}},
    {"length": {"minimum_characters": 150, "maximum_words": 60}},
    "exact_duplicates",
    {"length": {"name": "size", "minimum_words": 38}},
    {"gopher_quality": {"name": "later", "minimum_words": 33, "maximum_mean_word_length": 4.4}},
]
FIRST_PASS: Rules = [
    ("language", "undetermined", "label", lambda label: label is None),
    ("language", "keep", "label", lambda label: label not in ("en", None)),
    ("language", "minimum_score", "score", lambda score: score is not None and score < 0.96),
    ("gopher_quality", "minimum_words", "words", lambda words: words < 30),
    ("gopher_quality", "minimum_mean_word_length", "mean_word_length", lambda length: length < 3),
    ("gopher_quality", "minimum_alphabetic_words", "alphabetic_words", lambda share: share < 0.8),
    ("gopher_quality", "minimum_stop_words", "stop_words", lambda words: words < 4),
    ("length", "minimum_characters", "characters", lambda characters: characters < 150),
    ("length", "maximum_words", "words", lambda words: words > 60),
]
SECOND_PASS: Rules = [
    ("size", "minimum_words", "words", lambda words: words < 38),
    ("later", "minimum_words", "words", lambda words: words < 33),
    ("later", "maximum_mean_word_length", "mean_word_length", lambda length: length > 4.4),
]


def _write(folder: Path, texts: list[str]) -> list[str]:
    folder.mkdir(exist_ok=True)
    path = folder / "texts.jsonl"
    rows = ({"id": f"t{number}", "text": text} for number, text in enumerate(texts))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return [str(path)]


def _execute(folder: Path, texts: list[str], stages: list[Any], *options: str) -> Path:
    config = write_config(folder / "c.yaml", _write(folder, texts), folder / "run", stages, id_column="id")
    assert run(config, *options) == 0
    return folder / "run"


def _texts() -> list[str]:
    choose = random.Random(3)
    texts = []
    for _ in range(500):
        vocabulary = choose.choice([ENGLISH, ENGLISH, ENGLISH, GERMAN, ["1", "22", "the", "of"], ["7", "7,5"]])
        texts.append(" ".join(choose.choices(vocabulary, k=choose.randrange(24, 70))))
        if choose.random() < 0.2:
            texts.append(choose.choice(texts))
        if choose.random() < 0.05:
            texts.append(" ")
    return texts


def _failed(row: Row, rules: Rules) -> Iterator[tuple[str, str]]:
    yield from ((stage, rule) for stage, rule, signal, fails in rules if fails(row[f"{stage}.{signal}"]))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _execute(tmp_path_factory.mktemp("overlap"), _texts(), STAGES)


@pytest.fixture(scope="module")
def failed(finished: Path) -> list[tuple[list[tuple[str, str]], list[tuple[str, str]], bool, bool]]:
    """Of each record: the rules that it fails in the first pass and in the second, whether it is an empty text, and
    whether it is a duplicate that left."""
    copies = {row["record_id"] for row in table(finished, "ledger") if row["stage"] == "exact_duplicates"}
    found = []
    for row in table(finished, "signals"):
        empty, second = row["gopher_quality.words"] is None, row["size.words"] is not None
        found.append(
            (
                [] if empty else list(_failed(row, FIRST_PASS)),
                list(_failed(row, SECOND_PASS)) if second else [],
                empty,
                row["record_id"] in copies,
            )
        )
    return found


def test_overlap_is_a_recount_of_the_signals(finished: Path, failed: Any) -> None:
    expected: dict[str, Counter[str]] = {}
    for first, second, _, _ in failed:
        for rules in (first, second):
            names = ["/".join(rule) for rule in rules]
            for name in names:
                expected.setdefault(name, Counter()).update(names)
    overlap = report(finished)["overlap"]
    assert overlap == expected
    assert len(overlap) == len(FIRST_PASS) + len(SECOND_PASS)
    assert overlap["gopher_quality/minimum_words"]["length/minimum_characters"] > 0
    assert overlap["later/minimum_words"]["size/minimum_words"] == overlap["later/minimum_words"]["later/minimum_words"]
    in_second = {f"{stage}/{rule}" for stage, rule, *_ in SECOND_PASS}
    for name, others in overlap.items():
        assert all(count <= others[name] for count in others.values())
        assert in_second.issuperset(others) or in_second.isdisjoint(others)


def test_first_and_alone_are_a_recount_of_the_signals(finished: Path, failed: Any) -> None:
    first: Counter[tuple[str, str]] = Counter()
    alone: Counter[tuple[str, str]] = Counter()
    for in_first, in_second, empty, copy in failed:
        rules = [
            *([("input", "empty_text")] if empty else []),
            *in_first,
            *([("exact_duplicates", "duplication_budget")] if copy else []),
            *in_second,
        ]
        first.update(rules[:1])
        alone.update(rules if len(rules) == 1 else [])
    counts = {
        (stage["name"], rule): entry for stage in report(finished)["stages"] for rule, entry in stage["rules"].items()
    }
    assert {rule: entry["first"] for rule, entry in counts.items() if entry["first"]} == first
    assert {rule: entry["alone"] for rule, entry in counts.items() if entry["alone"]} == alone
    assert Counter((row["stage"], row["rule"]) for row in table(finished, "ledger")) == first
    for rule in [("input", "empty_text"), ("exact_duplicates", "duplication_budget"), ("length", "maximum_words")]:
        assert alone[rule] > 0
    assert first["size", "minimum_words"] > alone["size", "minimum_words"] > 0
    # Whoever has fewer words than this has fewer than the stage before wants, too.
    assert alone["later", "minimum_words"] == 0


def test_a_record_that_two_stages_drop_is_alone_under_neither(tmp_path: Path) -> None:
    stages = [
        {"length": {"minimum_words": 5}},
        {"length": {"name": "again", "minimum_words": 4}},
        {"python": {"function": "builtins:len", "returns": "score", "minimum": 100}},
    ]
    output = _execute(tmp_path, ["one two", "one two three", "one two three four", "a b c d e f"], stages)
    counts = {stage["name"]: stage["rules"] for stage in report(output)["stages"]}
    # The function counts the columns of a record, of which there are no hundred, and sees no record that has left.
    assert counts["length"] == {"minimum_words": {"first": 3, "alone": 1}}
    assert counts["again"] == {"minimum_words": {"first": 0, "alone": 0}}
    assert counts["python"] == {"minimum": {"first": 1, "alone": 1}}
    assert report(output)["overlap"] == {
        "length/minimum_words": {"length/minimum_words": 3, "again/minimum_words": 2},
        "again/minimum_words": {"length/minimum_words": 2, "again/minimum_words": 2},
        "python/minimum": {"python/minimum": 1},
    }


CHINESE = "这是一个关于河流和桥梁的故事，人们在这里生活了很长时间，他们用石头建造了这座桥。"
KOREAN = "이 강과 오래된 다리는 사람들이 기억하는 한 오랫동안 그곳에 있었고 돌로 지어졌습니다."
FRENCH = "La rivière et son vieux pont sont là depuis aussi longtemps que les gens se souviennent de leur histoire."


def test_words_of_scripts_without_spaces_are_remarked_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = [CHINESE, CHINESE * 2, KOREAN, " ".join(ENGLISH), "The Chinese word 河 means river, and 桥 means bridge."]
    output = _execute(tmp_path, texts, [{"gopher_quality": {"name": "prose"}}, "exact_duplicates"])
    stages = {stage["name"]: stage for stage in report(output)["stages"]}
    assert stages["prose"]["notices"] == {"unspaced_texts": 2}
    warning, nothing_kept = json.loads((output / "run.json").read_text())["warnings"]
    assert nothing_kept == "no record was kept"
    assert warning.startswith(
        "prose: in 2 of 5 texts more than half of the words are single letters of scripts without "
    )
    assert f"warning: {warning}" in " ".join(capsys.readouterr().out.split())
    plain = _execute(tmp_path / "plain", texts[2:], ["gopher_quality"])
    assert report(plain)["stages"][1]["notices"] == {"unspaced_texts": 0}
    assert not [said for said in json.loads((plain / "run.json").read_text())["warnings"] if "words" in said]


def test_large_budgets_of_duplicates_are_warned_of(tmp_path: Path) -> None:
    groups = {"by": "language", "default": 0.1, "values": {"ko": 0.75}}
    stages = [
        "language",
        {"exact_duplicates": {"name": "half", "duplication_budget": 0.5}},
        {"exact_duplicates": {"name": "less", "duplication_budget": 0.499}},
        {"exact_duplicates": {"name": "grouped", "duplication_budget": groups}},
    ]
    output = _execute(tmp_path, [FRENCH, KOREAN, FRENCH], stages)
    said = [warning.split(":")[:2] for warning in json.loads((output / "run.json").read_text())["warnings"]]
    assert said == [["half", " duplication_budget is 0.5"], ["grouped", " duplication_budget is 0.75"]]


OFF = dict.fromkeys(
    ("minimum_stop_words", "minimum_alphabetic_words", "minimum_mean_word_length", "maximum_mean_word_length"), "off"
)
BY_LANGUAGE = {"ko": {"minimum_words": 10}, "de": {"minimum_words": "off"}}
BY_LANGUAGE_STAGE = {"gopher_quality": {"minimum_words": 40, **OFF, "by_language": BY_LANGUAGE}}


def _languages() -> list[str]:
    german, english = " ".join(GERMAN), " ".join(ENGLISH)
    texts = [" ".join(text.split()[:count]) for text in (german, english, KOREAN, FRENCH) for count in (9, 12, 39)]
    return [*texts, *(" ".join([text] * 3) for text in (KOREAN, FRENCH)), "12 34 56", " ".join(["7"] * 50)]


@pytest.mark.parametrize(("options", "korean"), [((), 10.0), (("30",), 30.0)])
def test_limits_by_language(tmp_path: Path, options: tuple[str, ...], korean: float) -> None:
    sets = [f"--set=gopher_quality.by_language.ko.minimum_words={value}" for value in options]
    output = _execute(tmp_path, _languages(), ["language", BY_LANGUAGE_STAGE], *sets)
    limits = {"ko": korean, "de": 0.0}
    dropped = {}
    labels: Counter[tuple[str | None, bool]] = Counter()
    for row in table(output, "signals"):
        label, words = row["language.label"], row["gopher_quality.words"]
        fails = words < limits.get(label, 40.0)
        assert row["kept"] is not fails
        labels[label, fails] += 1
        if fails:
            dropped[row["record_id"]] = (words, limits.get(label, 40.0))
    assert {row["record_id"]: (row["value"], row["threshold"]) for row in table(output, "ledger")} == dropped
    both = [("ko", True), ("ko", False), ("fr", True), ("fr", False), (None, True), (None, False), ("en", True)]
    assert all(labels[case] for case in [*both, ("de", False)])
    assert ("de", True) not in labels
    rules = report(output)["stages"][2]["rules"]
    assert rules["minimum_words"] == {"first": len(dropped), "alone": len(dropped)}


def test_labels_that_no_text_has_are_remarked_on(tmp_path: Path) -> None:
    settings = {**OFF, "by_language": {"kor": {"minimum_words": 10}, "de": {"minimum_words": 5}, "swe": {}}}
    stages: list[Any] = ["language", {"gopher_quality": settings}, {"length": {"by_language": {"de": {}}}}]
    output = _execute(tmp_path, _languages(), stages)
    _, _, prose, length = report(output)["stages"]
    assert prose["notices"] == {"labelled_de": 3, "labelled_kor": 0, "labelled_swe": 0, "unspaced_texts": 0}
    assert set(length["notices"]) == {"labelled_de"}
    said = [
        warning for warning in json.loads((output / "run.json").read_text())["warnings"] if "by_language" in warning
    ]
    assert said == [
        "gopher_quality: by_language has settings for kor, swe, and no text that entered the stage has such a label: "
        "labels are those that language.label gives, such as en or ko"
    ]


def test_limits_by_language_need_a_language_stage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for stages in ([BY_LANGUAGE_STAGE], [BY_LANGUAGE_STAGE, "language"]):
        config = write_config(tmp_path / "c.yaml", _write(tmp_path, ["text"]), tmp_path / "run", stages)
        assert run(config) == 2
        error = capsys.readouterr().err
        assert "stages.gopher_quality: its settings differ by language, and no language stage stands before it" in error
        assert not (tmp_path / "run/curated").exists()
