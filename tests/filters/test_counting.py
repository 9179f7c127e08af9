import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from corpus.errors import UsageError
from corpus.stages import Stage, TextBatch, known_stages
from corpus.verdicts import failures, first_rule, rule_fails
from filters.counting import CountingStage, language_numbers
from pipelines.config import config_from_mapping, semantic_config

STAGES = [kind for kind, found in known_stages().items() if issubclass(found, CountingStage)]
ENGLISH, GERMAN = "the end of the tale", "das Ende der Geschichte und der Anfang"
TABLE: dict[str, Any] = {
    "minimum_words": 5,
    "minimum_stop_words": 2,
    "by_language": {
        "de": {"stop_words": ["der", "und", "das"], "minimum_words": 7, "minimum_stop_words": 3},
        "ko": {"minimum_words": "off", "minimum_stop_words": "off"},
    },
}


def made(kind: str, **settings: Any) -> Any:
    found = known_stages()[kind]
    stage: Any = found(found.Config(**settings), kind, "text")
    stage.prepare()
    return stage


def batch_of(texts: list[str], labels: list[str | None] | None) -> TextBatch:
    languages = None if labels is None else pa.array(labels, pa.string())
    return TextBatch(pa.array(texts, pa.string()), np.ones(len(texts), np.bool_), languages=languages)


def config_of(sets: list[str], **settings: Any) -> Any:
    document = {"input": {"files": ["a.jsonl"], "text_column": "text"}, "stages": ["language", {"length": settings}]}
    return config_from_mapping(document, sets)


def test_the_stages_that_count() -> None:
    assert {"gopher_quality", "gopher_repetition", "fineweb_quality", "length"} <= set(STAGES)


@pytest.mark.parametrize("kind", STAGES)
def test_every_limit_may_differ_by_language(kind: str) -> None:
    names = [name for name, _, _ in known_stages()[kind].RULES]  # type: ignore[attr-defined]
    stage = made(kind, **dict.fromkeys(names, "off"), by_language={"de": dict.fromkeys(names, 1), "ko": {}})
    assert stage.uses_languages()
    assert [(rule.name, rule.threshold, rule.by_language) for rule in stage.rules()] == [
        (name, None, {"de": 1.0}) for name in names
    ]
    assert made(kind, **dict.fromkeys(names, "off"), by_language={"de": dict.fromkeys(names, "off")}).rules() == ()
    default = made(kind)
    assert not default.uses_languages()
    assert all(not rule.by_language for rule in default.rules())


def test_texts_are_judged_by_the_limits_and_stop_words_of_their_language() -> None:
    stage = made("gopher_quality", **TABLE)
    texts, labels = [ENGLISH, ENGLISH, ENGLISH, GERMAN, GERMAN, "짧은 글"], ["en", None, "de", "de", "en", "ko"]
    batch = batch_of(texts, labels)
    signals = stage.measure(batch)
    assert signals["stop_words"].to_pylist() == [2, 2, 0, 3, 0, 0]
    names = [rule.name for rule in stage.rules()]
    first = first_rule(failures(stage.rules(), signals, batch.languages)).tolist()
    assert ["kept" if found < 0 else names[found] for found in first[:5]] == [
        *("kept", "kept", "minimum_words", "kept", "minimum_stop_words")
    ]
    minimum = next(rule for rule in stage.rules() if rule.name == "minimum_words")
    assert rule_fails(minimum, signals["words"], batch.languages).tolist() == [False, False, True, False, False, False]


def test_texts_without_labels_are_judged_by_the_settings_of_the_stage() -> None:
    stage = made("gopher_quality", **TABLE)
    assert stage.measure(batch_of([ENGLISH, GERMAN], None))["stop_words"].to_pylist() == [2, 0]
    assert language_numbers(batch_of(["a", "b", "c"], ["ko", None, "xx"]), ["de", "ko"]).tolist() == [2, 0, 0]


def test_short_lines_differ_by_language() -> None:
    stage = made("fineweb_quality", by_language={"zh": {"short_line_length": 3}, "ja": {"maximum_short_lines": 0.5}})
    signals = stage.measure(batch_of(["世界世界\n世界"] * 3, ["zh", "ja", None]))
    assert signals["short_lines"].to_pylist() == [0.5, 1.0, 1.0]


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (
            "gopher_quality",
            {"by_language": {"de": {"minimum_words": 200_000}}},
            r"by_language\.de: minimum_words \(200000\) is above maximum_words \(100000\)",
        ),
        (
            "gopher_quality",
            {"by_language": {"de": {"stop_words": ["der"]}}},
            r"by_language\.de: minimum_stop_words \(2\) is above the number of stop_words \(1\)",
        ),
        (
            "length",
            {"minimum_lines": 5, "by_language": {"ko": {"minimum_lines": 2}, "ja": {"maximum_lines": 4}}},
            r"by_language\.ja: minimum_lines \(5\) is above maximum_lines \(4\)",
        ),
        ("fineweb_quality", {"by_language": {"de": {"maximum_short_lines": 1.5}}}, "less than or equal to 1"),
        ("gopher_repetition", {"by_language": {"de": {"maximum_duplicate_lines": None}}}, "maximum_duplicate_lines"),
        ("gopher_repetition", {"by_language": {"de": {"preset": "thresher-1"}}}, "preset"),
        ("length", {"by_language": {"de": 3}}, "de"),
    ],
)
def test_bad_settings_of_a_language(kind: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        known_stages()[kind].Config(**settings)


def test_a_stop_word_of_a_language_that_no_text_can_have_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"gopher_quality\.by_language\.zh\.stop_words: '世界' is not one word"):
        made("gopher_quality", by_language={"zh": {"stop_words": ["的", "世界"]}})


def test_settings_of_a_language_come_from_the_command_line_too() -> None:
    config = config_of(["length.by_language.de.minimum_words=30"], by_language={"de": {"maximum_words": 40}})
    stages: list[Stage] = config.build()
    assert stages[1].language_column == "language.label"
    assert [(rule.name, rule.threshold, rule.by_language) for rule in stages[1].rules()] == [
        ("minimum_words", None, {"de": 30.0}),
        ("maximum_words", None, {"de": 40.0}),
    ]
    with pytest.raises(UsageError, match=r"by_language\.de: minimum_words \(50\) is above maximum_words \(40\)"):
        config_of(["length.by_language.de.minimum_words=50"], by_language={"de": {"maximum_words": 40}})
    with pytest.raises(UsageError, match=r"length\.by_language\.de\.minimum_wrds: unknown setting here"):
        config_of(["length.by_language.de.minimum_wrds=50"])


def test_the_semantic_config_has_what_was_given_for_a_language_and_no_more() -> None:
    semantic = semantic_config(config_of([], by_language={"de": {"maximum_words": 40}}), {})
    assert semantic["stages"][1]["length"]["by_language"] == {"de": {"maximum_words": 40}}
    assert semantic["stages"][1]["length"]["maximum_words"] == "off"
    assert semantic_config(config_from_mapping(json.loads(json.dumps(semantic))), {}) == semantic


def test_the_schema_gives_no_defaults_for_a_language() -> None:
    definitions = known_stages()["length"].Config.model_json_schema()
    assert definitions["properties"]["minimum_words"]["default"] == "off"
    assert "default" not in definitions["$defs"]["LengthLimits"]["properties"]["minimum_words"]


def test_stages_share_one_sweep_over_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    from corpus import text_statistics_kernel

    sweeps = []
    sweep = text_statistics_kernel.find_words_and_lines

    def counted(*arguments: Any) -> Any:
        sweeps.append(1)
        return sweep(*arguments)

    monkeypatch.setattr(text_statistics_kernel, "find_words_and_lines", counted)
    batch = batch_of([ENGLISH, GERMAN], None)
    shared = {kind: made(kind).measure(batch) for kind in STAGES}
    assert len(sweeps) == 1
    assert shared == {kind: made(kind).measure(batch_of([ENGLISH, GERMAN], None)) for kind in STAGES}
