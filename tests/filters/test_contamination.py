"""The stage contamination: what it drops, cuts and lists; boilerplate set aside; known values on real benchmarks."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from corpus.batch import DEAD_SCHEMA, DocumentBatch
from corpus.findings import apply_edits, edits_of, in_stage
from corpus.hashing import content_hashes
from corpus.stages import Judgement, TextBatch
from corpus.verdicts import ALIVE, alive_after, failures, mark_record_stage
from filters.contamination import Contamination, ContaminationConfig, ContaminationCut
from filters.contamination_boilerplate import (
    merge_sources,
    ngram_numbers,
    ngram_sources,
    set_aside,
    tokens_aside,
)
from filters.contamination_build import build_index
from filters.contamination_evidence import gather
from filters.contamination_findings import judgement
from filters.contamination_tokens import tokens
from filters.contamination_verdict import verdict
from filters.suite_items import BenchmarkItem
from tests.filters.texts import SHARED

CASES = SHARED / "cases"
BENCHMARKS = SHARED / "data" / "benchmarks"
needs_shared = pytest.mark.skipif(not CASES.is_dir(), reason="the shared data are not beside the repository")

FILLER = "the quiet market sold fruit and books under yellow lamps while people walked along the old street"
QUESTION = (
    "A gardener plants seven rows of quince trees beside a river and waters each third row every morning; how many "
    "rows stay dry on the tenth day of June?"
)


def made(folder: Path, rows: list[dict[str, Any]], text_field: str = "text", **settings: Any) -> Contamination:
    """A stage over one benchmark with these rows."""
    lines = "".join(f"{json.dumps({'answer': '', **row})}\n" for row in rows)
    (folder / "items.jsonl").write_text(lines, encoding="utf-8")
    (folder / "suite.yaml").write_text(
        "benchmarks: [{name: quiz, files: items.jsonl, id: id, question: question, answer: answer, choices: choices}]",
        encoding="utf-8",
    )
    config = ContaminationConfig(suites=[str(folder / "suite.yaml")], boilerplate="off", **settings)
    stage = Contamination.variant(config)(config, "contamination", text_field)
    assert isinstance(stage, Contamination)
    stage.prepare()
    return stage


def judged(stage: Contamination, texts: list[str | None]) -> tuple[list[bool], Judgement, list[dict[str, Any]]]:
    """Which texts a rule drops, the judgement, and its findings with their details read."""
    alive = np.array([text is not None for text in texts])
    found = stage.judge(TextBatch(pa.array(texts, pa.string()), alive))
    assert found.findings is not None
    findings = [{**finding, **json.loads(finding["detail"])} for finding in found.findings.to_pylist()]
    return (
        (failures([rule for rule in stage.rules() if rule.signal in found.signals], found.signals) != 0).tolist(),
        found,
        findings,
    )


def case(name: str, folder: Path, **settings: Any) -> tuple[dict[str, bool], Judgement, list[dict[str, Any]]]:
    """What the stage says of a shared case, by the id of the text; findings get the id as ``text_id``."""
    path = next(CASES.glob(f"{name}-*"))
    rows = [json.loads(line) for line in (path / "benchmark.jsonl").read_text(encoding="utf-8").splitlines()]
    texts = [json.loads(line) for line in (path / "input.jsonl").read_text(encoding="utf-8").splitlines()]
    dropped, found, findings = judged(made(folder, rows, **settings), [text["text"] for text in texts])
    names = [text["id"] for text in texts]
    for finding in findings:
        finding["text_id"] = names[finding["row"]]
    return dict(zip(names, dropped, strict=True)), found, findings


@needs_shared
@pytest.mark.parametrize(
    ("threshold", "wanted"), [(0.95, {"full"}), (0.85, {"full", "w54"}), (0.5, {"full", "w54", "w40"})]
)
def test_the_threshold_is_honoured(threshold: float, wanted: set[str], tmp_path: Path) -> None:
    dropped, found, findings = case("c01", tmp_path, threshold=threshold)
    assert {name for name, value in dropped.items() if value} == wanted
    assert found.signals["score"].to_pylist() == [1.0, 0.9, 40 / 60, 0.3, 0.0]
    assert {finding["related"] for finding in findings} == {"quiz/q1"}
    assert [finding["tokens_found"] for finding in findings] == [60, 54, 40][: len(wanted)]


@needs_shared
def test_short_items(tmp_path: Path) -> None:
    dropped, found, findings = case("c03", tmp_path)
    assert {name for name, value in dropped.items() if value} == {"d1", "d5", "d8"}
    drops = {finding["text_id"]: finding["related"] for finding in findings if finding["action"] == "drop"}
    assert drops == {"d1": "quiz/s1", "d5": "quiz/s2", "d8": "quiz/s8"}
    flags = {finding["text_id"]: finding["rule"] for finding in findings if finding["action"] == "flag"}
    assert flags == {"d2": "question_only", "d10": "question_only"}
    assert found.signals["question_only"].to_pylist() == [0, 1, 0, 0, 0, 0, 0, 0, 0, 1]
    alone, _, _ = case("c03", tmp_path, question_words=6)
    assert {name for name, value in alone.items() if value} == {"d1", "d2", "d5", "d8", "d10"}
    without, _, _ = case("c03", tmp_path, short_items="off")
    assert not any(without.values())


@needs_shared
def test_case_and_punctuation(tmp_path: Path) -> None:
    dropped, found, findings = case("c05", tmp_path)
    assert {name for name, value in dropped.items() if not value} == {"topic", "filler"}
    scores = dict(zip(dropped, found.signals["score"].to_pylist(), strict=True))
    exact = set(dropped) - {"html", "other_numbers", "topic", "filler"}
    assert {scores[name] for name in exact} == {1.0}
    assert scores["topic"] < scores["other_numbers"] < scores["html"] < 1.0
    texts = [json.loads(line) for line in next(CASES.glob("c05-*")).joinpath("input.jsonl").open(encoding="utf-8")]
    for finding in findings:
        text = texts[finding["row"]]["text"][finding["start"] : finding["end"]]
        if finding["text_id"] in exact:
            assert tokens(text)[0] == "in"
            assert tokens(text)[-1] == "to"
            assert len(tokens(text)) == 36


@needs_shared
def test_answers_and_choices(tmp_path: Path) -> None:
    dropped, found, findings = case("c06", tmp_path)
    assert {name for name, value in dropped.items() if value} == {"k1", "k2", "k6", "k7", "k9"}
    found_by_text = {finding["text_id"]: finding for finding in findings}
    assert len(found_by_text) == len(findings)
    assert {name: finding["related"] for name, finding in found_by_text.items()} == {
        "k1": "quiz/cell",
        "k2": "quiz/cell",
        "k6": "quiz/proof",
        "k7": "quiz/tide",
        "k9": "quiz/proof",
    }
    assert found_by_text["k1"]["value"] == found_by_text["k2"]["value"]
    assert found_by_text["k6"]["part"] == "answer"
    assert found_by_text["k7"]["part"] == "question and answer"
    assert found_by_text["k9"]["part"] == "question"
    assert found.signals["best_item"].to_pylist()[2] is None


def test_the_same_in_batches_of_any_size_and_rows_not_alive(tmp_path: Path) -> None:
    stage = made(tmp_path, [{"id": "1", "question": QUESTION}, {"id": "2", "question": QUESTION[::-1]}])
    texts: list[str | None] = [FILLER, f"{FILLER} {QUESTION} {FILLER}", None, "", QUESTION.upper(), f"{QUESTION} " * 3]
    _, whole, findings = judged(stage, texts)
    assert whole.signals["score"].to_pylist() == [0.0, 1.0, 0.0, 0.0, 1.0, 1.0]
    assert [finding["row"] for finding in findings if finding["related"] == "quiz/1"] == [1, 4, 5, 5, 5]
    for row, text in enumerate(texts):
        _, single, _ = judged(stage, [text])
        for name, values in whole.signals.items():
            assert single.signals[name][0].as_py() == values[row].as_py()


def test_no_item_without_suites_and_no_threshold_of_one() -> None:
    for settings in ({}, {"suites": []}, {"suites": ["a.yaml"], "threshold": 1.0}):
        with pytest.raises(ValidationError):
            ContaminationConfig.model_validate(settings)
    with pytest.raises(RuntimeError):
        Contamination(ContaminationConfig(suites=["a.yaml"], boilerplate="off"), "contamination", "text").judge(
            TextBatch(pa.array(["a"]), np.ones(1, bool))
        )


def test_flag_lists_and_drops_nothing(tmp_path: Path) -> None:
    stage = made(tmp_path, [{"id": "1", "question": QUESTION, "answer": "four"}], action="flag")
    dropped, found, findings = judged(stage, [f"{FILLER} {QUESTION} Four. {FILLER}"])
    assert dropped == [False]
    assert found.signals["score"].to_pylist() == [1.0]
    assert [(finding["action"], finding["rule"], finding["near"]) for finding in findings] == [
        ("flag", "threshold", ["answer"])
    ]
    assert findings[0]["text"].startswith("A gardener plants")


def test_cut_takes_the_item_and_its_margin_out(tmp_path: Path) -> None:
    rows = [{"id": "1", "question": QUESTION}, {"id": "2", "question": QUESTION.replace("gardener", "farmer")}]
    stage = made(tmp_path, rows, action="cut", margin=2, minimum_left=50)
    before, behind = f"{FILLER}. ", f" {FILLER}"
    texts = [f"{before}{QUESTION}{behind}", f"ab {QUESTION} cd", FILLER, f"{before}{QUESTION}\n{QUESTION}{behind}"]
    dropped, found, findings = judged(stage, list(texts))
    assert found.findings is not None
    cut = apply_edits(pa.array(texts), edits_of(in_stage(found.findings, "contamination", "text"))).to_pylist()
    stripped = QUESTION.rstrip("?")
    assert cut[0] == texts[0][: len(before) - 2] + texts[0][len(before) + len(stripped) + 2 :]
    assert cut[1] == "acd"
    assert cut[2] == FILLER
    assert "quince" not in cut[3]
    assert dropped == [False, True, False, False]
    assert found.signals["characters_missing"].to_pylist() == [0, 47, 0, 0]
    assert found.signals["items"].to_pylist() == [2, 2, 0, 2]
    assert [finding["row"] for finding in findings] == [0, 1, 3]
    assert findings[0]["related"] == "quiz/1"
    assert findings[0]["other_items"] == ["quiz/2"]
    assert stage.rules()[-1].name == "empty_after_edit"


def test_spans_in_texts_that_nfkc_changes(tmp_path: Path) -> None:
    stage = made(tmp_path, [{"id": "1", "question": QUESTION}], action="flag")
    before = "Zoe\u0308 ﬁne ｶﾞ " * 3
    _, _, findings = judged(stage, [f"{before}{QUESTION} {before}", QUESTION])
    assert [(finding["start"], finding["end"]) for finding in findings] == [
        (len(before), len(before) + len(QUESTION) - 1),
        (0, len(QUESTION) - 1),
    ]


def test_changed_words_and_other_languages(tmp_path: Path) -> None:
    chinese = "一个园丁在河边种了七排榅桲树，每天早上给每第三排浇水；到六月十日还有多少排是干的？请写出计算过程。"
    korean = (
        "정원사가 강가에 모과나무를 일곱 줄 심고 매일 아침 세 번째 줄마다 물을 준다면 "
        "유월 십일에 마른 줄은 몇 줄인가요?"
    )
    rows = [{"id": "en", "question": QUESTION}, {"id": "zh", "question": chinese}, {"id": "ko", "question": korean}]
    stage = made(tmp_path, rows)
    dropped, found, _ = judged(
        stage,
        [
            QUESTION.replace("quince", "apple").replace("tenth", "ninth"),
            f"前文{chinese.replace('七', '八')}后文",
            f"앞글 {korean.replace('일곱', '여덟')} 뒷글",
            QUESTION.replace("gardener plants seven rows", "baker sells nine loaves").replace("quince trees", "bread"),
        ],
    )
    assert dropped == [True, True, True, False]
    assert found.signals["best_item"].to_pylist()[:3] == ["quiz/en", "quiz/zh", "quiz/ko"]


def boilerplate_batches() -> tuple[Any, list[Any], list[str]]:
    phrase = "we hold these truths to be self evident that all men are created equal and free"
    items = [
        BenchmarkItem("quiz", "speech", (phrase,)),
        BenchmarkItem(
            "quiz", "about", (f"{phrase} Who of the founders wrote this famous line in which old town hall?",)
        ),
        BenchmarkItem("quiz", "garden", (QUESTION,)),
    ]
    index = build_index(items)
    texts = [f"{FILLER} {phrase} {FILLER}"] * 4 + [items[1].questions[0], f"{FILLER} {QUESTION}"]
    batches = [pa.array(texts[:3]), pa.array(texts[3:])]
    return index, [gather(batch, np.ones(len(batch), np.bool_), index, 50) for batch in batches], texts


def test_ngrams_of_many_sources_are_set_aside() -> None:
    index, (first, second), _ = boilerplate_batches()
    packs = [
        ngram_sources(first, np.array([1, 2, 3], np.uint64), 4),
        ngram_sources(second, np.array([4, 5, 5], np.uint64), 4),
    ]
    merged = merge_sources(packs, 4)
    assert merged == merge_sources(packs[::-1], 4) == merge_sources([merge_sources(packs[1:], 4), packs[0]], 4)
    assert len(set_aside(merged, 5)) == 0
    away = tokens_aside(index, set_aside(merged, 4))
    kept = verdict(second, index, 3)
    assert (np.maximum(kept.long_scores, kept.medium_scores) == 1.0).tolist() == [True, True, True]
    after = verdict(second, index, 3, away)
    scores = np.maximum(after.long_scores, after.medium_scores).tolist()
    assert scores[0] < 0.25, "only the phrase, which is everywhere"
    assert scores[1:] == [1.0, 1.0], "what is not set aside is found"
    config = ContaminationConfig(suites=["unused"])
    texts = pa.array(boilerplate_batches()[2][3:])
    listed = judgement(texts, second, index, config, away).findings
    assert listed is not None
    assert listed.column("related").to_pylist() == ["quiz/about", "quiz/garden"]


def test_a_limit_bounds_the_pack() -> None:
    _, (first, second), _ = boilerplate_batches()
    many = [ngram_sources(first, np.array([3 * n, 3 * n + 1, 3 * n + 2], np.uint64), 4) for n in range(50)]
    assert len(merge_sources(many, 4)) == len(merge_sources(many[:2], 4))
    assert len(set_aside(merge_sources(many, 4), 4)) == len(np.unique(first.ngrams))
    assert len(second.ngrams) > 0


def test_ngram_numbers_are_first_postings() -> None:
    index, _, _ = boilerplate_batches()
    numbers = ngram_numbers(index)
    for posting, number in enumerate(numbers.tolist()):
        assert number <= posting
        grams = [index.tokens[index.postings[place] :][:5].tolist() for place in (posting, number)]
        assert grams[0] == grams[1]


def plain_ngrams(text: str, size: int) -> set[tuple[str, ...]]:
    words = tokens(text)
    return {tuple(words[start : start + size]) for start in range(len(words) - size + 1)}


@pytest.mark.skipif(not BENCHMARKS.is_dir(), reason="the shared data are not beside the repository")
def test_known_values_of_the_plain_ngram_rule() -> None:
    import re

    def grams(text: str, size: int) -> set[tuple[str, ...]]:
        words = re.findall(r"[a-z0-9]+", text.lower())
        return {tuple(words[start : start + size]) for start in range(len(words) - size + 1)}

    def questions(path: Path, field: str) -> list[str]:
        return [json.loads(line)[field] for line in path.read_text(encoding="utf-8").splitlines()]

    test = questions(BENCHMARKS / "gsm8k/test.jsonl", "question")
    train = questions(BENCHMARKS / "gsm8k/train.jsonl", "question")
    rephrased = questions(SHARED / "data/contamination/rephrase_gsm8k.jsonl", "text")
    hits, shared = [], []
    for size in (8, 10, 13):
        own = [grams(text, size) for text in test]
        union = set().union(*own)
        hits.append(sum(not union.isdisjoint(grams(text, size)) for text in train))
        pairs = zip(own, rephrased, strict=True)
        shared.append(sum(not grams_of.isdisjoint(grams(text, size)) for grams_of, text in pairs))
    assert hits == [94, 11, 4]
    assert shared == [83, 11, 0]


@pytest.mark.skipif(not BENCHMARKS.is_dir(), reason="the shared data are not beside the repository")
def test_gsm8k_train_holds_three_items_of_its_test_set(tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text(
        f"benchmarks: [{{name: gsm8k, files: {BENCHMARKS}/gsm8k/test.jsonl, question: question, answer: answer}}]"
    )
    stage = Contamination(
        ContaminationConfig(suites=[str(tmp_path / "suite.yaml")], boilerplate="off"), "contamination", "text"
    )
    stage.prepare()
    lines = (BENCHMARKS / "gsm8k/train.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    dropped, _, findings = judged(stage, [f"{row['question']}\n{row['answer']}" for row in rows])
    assert sum(dropped) == 3
    assert sorted(finding["related"] for finding in findings) == ["gsm8k/603", "gsm8k/603", "gsm8k/633"]
    test_rows = [json.loads(line) for line in (BENCHMARKS / "gsm8k/test.jsonl").read_text().splitlines()]
    assert all(judged(stage, [row["question"] for row in test_rows[:200]])[0])


def marked(stage: Contamination, prompt: str, response: str) -> tuple[bool, list[dict[str, Any]], str]:
    """Whether a pair stays, its findings, and its prompt behind the stage."""
    records = pa.RecordBatch.from_pydict(
        {
            "prompt": pa.array([prompt]),
            "response": pa.array([response]),
            "content_hash": content_hashes([pa.array([prompt]), pa.array([response])]),
            "characters": pa.array([len(prompt) + len(response)], pa.int64()),
            "bytes": pa.array([len(prompt.encode()) + len(response.encode())], pa.int64()),
        }
    )
    marks = pa.RecordBatch.from_pydict({ALIVE: pa.array([True])})
    batch = DocumentBatch(0, 0, True, "pairs.jsonl", records, pa.RecordBatch.from_pylist([], schema=DEAD_SCHEMA), marks)
    after = mark_record_stage(stage, batch)
    return (
        bool(alive_after(after.marks, [stage])[0]),
        after.findings.to_pylist(),
        after.current.column("prompt")[0].as_py(),
    )


def test_a_pair_is_searched_as_one_text_unless_it_is_cut(tmp_path: Path) -> None:
    rows = [{"id": "1", "question": "Which metal melts in the hand?", "answer": "gallium"}]
    stays, findings, _ = marked(made(tmp_path, rows, "both"), "Which metal melts in the hand?", "That is gallium.")
    assert not stays
    assert [(finding["field"], finding["related"]) for finding in findings] == [("both", "quiz/1")]
    cutting = pickle.loads(pickle.dumps(made(tmp_path, rows, "both", action="cut", margin=0, minimum_left=3)))
    assert isinstance(cutting, ContaminationCut)
    stays, findings, prompt = marked(cutting, "Ask: which metal melts in the hand? Gallium!", "Right.")
    assert stays
    assert prompt == "Ask: ? Gallium!"
    assert [(finding["field"], finding["action"]) for finding in findings] == [("prompt", "cut")]
