"""Labelled texts for the contamination benchmark: items of benchmarks put into real documents, and what must not match.

Everything is drawn with one seed; the same inputs give the same texts.
"""

from __future__ import annotations

import difflib
import json
import random
import re
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from filters.suite_items import BenchmarkItem

FORMAT_KINDS = ("verbatim", "re-cased", "re-spaced", "re-punctuated", "line-broken", "question only")
ANSWER_KINDS = ("question and answer", "choices reordered")
CHANGED = {"1 word changed": 1, "2 words changed": 2, "3 words changed": 3}
KINDS = (*FORMAT_KINDS, *ANSWER_KINDS, *CHANGED)

LINE_WORDS = 6
NEAR_MISS_SHARE = 0.4
"""Share of the words of an item that a near miss has others for."""
TRUE_OVERLAP = 0.8
"""Similarity of two questions, by their words (``difflib``), from which on they are one question."""
SHARED_GRAM = 8

SUITE = """
benchmarks:
  - {name: gsm8k, files: FOLDER/gsm8k/test.jsonl, question: question, answer: answer}
  - {name: humaneval, files: FOLDER/humaneval/HumanEval.jsonl.gz, id: task_id, question: prompt,
     answer: canonical_solution}
  - {name: mbpp, files: FOLDER/mbpp/mbpp.jsonl, id: task_id, question: text, answer: code}
  - {name: ifeval, files: FOLDER/ifeval/input_data.jsonl, id: key, question: prompt}
  - {name: truthfulqa, files: FOLDER/truthfulqa/TruthfulQA.csv, question: Question, answer: Best Answer}
  - {name: mt_bench, files: FOLDER/mt_bench/question.jsonl, id: question_id, question: turns}
  - {name: bbh, files: "FOLDER/bbh/*.json", records: examples, question: input, answer: target}
  - {name: mmlu, files: "FOLDER/mmlu/*_test.csv", columns: [question, A, B, C, D, answer], question: question,
     choices: [A, B, C, D], answer: answer, answer_is: letter}
  - {name: kobest_boolq, files: FOLDER/kobest/BoolQ/test.tsv, id: ID, question: Question, context: Text,
     answer: Answer}
  - {name: kobest_copa, files: FOLDER/kobest/COPA/test.tsv, id: ID, question: sentence, choices: ["1", "2"],
     answer: Answer, answer_is: one_based}
  - {name: kobest_hellaswag, files: FOLDER/kobest/HellaSwag/test.tsv, question: context,
     choices: [choice1, choice2, choice3, choice4], answer: label, answer_is: zero_based}
  - {name: kobest_sentineg, files: FOLDER/kobest/SentiNeg/test.tsv, id: ID, question: Text, answer: Label}
  - {name: klue_sts, files: FOLDER/klue/klue-sts-v1.1_dev.json, id: guid, question: sentence1, answer: sentence2}
"""


@dataclass(frozen=True)
class LabelledText:
    """A text and what it holds.

    Attributes:
        text: the whole document.
        kind: how the item was put in, or what the negative is.
        item: ``<benchmark>/<id>`` of the item in it, None for a negative.
    """

    text: str
    kind: str
    item: str | None


def write_suite(benchmarks: Path, folder: Path) -> Path:
    """Write the suite file of the benchmarks below a folder, and return its path."""
    path = folder / "shared.yaml"
    path.write_text(SUITE.replace("FOLDER", str(benchmarks.resolve())), encoding="utf-8")
    return path


def _re_punctuated(text: str, choose: random.Random) -> str:
    quotes = {'"': "“", "'": "’", ",": "", ";": ",", "?": "", "-": " – ", "(": "[", ")": "]"}
    return "".join(quotes.get(character, character) for character in text)


def _line_broken(text: str, choose: random.Random) -> str:
    words = text.split()
    return "\n".join(" ".join(words[start : start + LINE_WORDS]) for start in range(0, len(words), LINE_WORDS))


FORMATS: Mapping[str, Callable[[str, random.Random], str]] = {
    "verbatim": lambda text, choose: text,
    "question only": lambda text, choose: text,
    "re-cased": lambda text, choose: text.upper(),
    "re-spaced": lambda text, choose: re.sub(" ", lambda _: choose.choice(["  ", "\t", "\u00a0", " \u200b"]), text),
    "re-punctuated": _re_punctuated,
    "line-broken": _line_broken,
}


def with_words_changed(text: str, count: int, words: Sequence[str], choose: random.Random) -> str:
    """Return a text in which so many words, drawn at random, are others."""
    parts = re.split(r"(\s+)", text)
    places = [place for place, part in enumerate(parts) if re.search(r"\w", part)]
    for place in choose.sample(places, min(count, len(places))):
        parts[place] = choose.choice(words)
    return "".join(parts)


def injected(item: BenchmarkItem, kind: str, words: Sequence[str], choose: random.Random) -> str | None:
    """Return what of an item is put into a document, None where the kind does not fit it.

    But for the kinds "question only" and "question and answer", the answer follows where the item has one, as test sets
    are found on the web.
    """
    question = item.questions[0]
    if kind == "choices reordered":
        if not item.choices:
            return None
        choices = choose.sample(item.choices, len(item.choices))
        return question + "".join(f"\n({number}) {choice}" for number, choice in enumerate(choices, 1))
    if kind == "question and answer":
        return f"Question: {question}\nAnswer: {item.answer}" if item.answer else None
    if kind in CHANGED:
        return with_words_changed(question, CHANGED[kind], words, choose)
    text = FORMATS[kind](question, choose)
    return text if kind == "question only" or not item.answer else f"{text}\n{FORMATS[kind](item.answer, choose)}"


def inserted(document: str, text: str, choose: random.Random) -> str:
    """Return a document with a text put between two of its words."""
    blanks = [match.start() for match in re.finditer(r"\s", document)]
    place = choose.choice(blanks) if blanks else 0
    return f"{document[:place]}\n{text}\n{document[place:]}"


def positives(items: Sequence[BenchmarkItem], documents: Iterator[str], seed: int) -> Iterator[LabelledText]:
    """Yield each item in each kind that fits it, in a document of its own."""
    choose = random.Random(seed)
    words = sorted({word for _ in range(200) for word in next(documents).split() if word.isalpha() and len(word) > 2})
    for item in items:
        for kind in KINDS:
            text = injected(item, kind, words, choose)
            if text is not None:
                document = inserted(next(documents), text, choose)
                yield LabelledText(document, kind, f"{item.benchmark}/{item.id}")


def near_misses(items: Sequence[BenchmarkItem], documents: Iterator[str], seed: int) -> Iterator[LabelledText]:
    """Yield items of which many words are others: the template of the question, but not the question."""
    choose = random.Random(seed + 1)
    words = sorted({word for _ in range(200) for word in next(documents).split() if word.isalpha() and len(word) > 2})
    for item in items:
        question = item.questions[0]
        count = max(4, round(NEAR_MISS_SHARE * len(question.split())))
        text = with_words_changed(question, count, words, choose)
        yield LabelledText(inserted(next(documents), text, choose), "near miss", None)


def licence_texts() -> Iterator[LabelledText]:
    """Yield the licence files of the packages of this environment."""
    for path in sorted(Path(sysconfig.get_paths()["purelib"]).glob("*.dist-info/**/*")):
        if path.is_file() and re.match(r"LICEN[CS]E|COPYING|NOTICE", path.name):
            yield LabelledText(path.read_text(encoding="utf-8", errors="replace"), "licence", None)


def _grams(text: str, size: int) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[start : start + size]) for start in range(len(words) - size + 1)}


def gsm8k_train(benchmarks: Path) -> Iterator[LabelledText]:
    """Yield the training set of GSM8K, those that are items of its test set with few words changed labelled as such.

    Pairs of questions that share an 8-gram of words are compared word by word.
    """
    test = [json.loads(line) for line in (benchmarks / "gsm8k/test.jsonl").read_text(encoding="utf-8").splitlines()]
    owners: dict[tuple[str, ...], set[int]] = {}
    for number, row in enumerate(test):
        for gram in _grams(row["question"], SHARED_GRAM):
            owners.setdefault(gram, set()).add(number)
    for line in (benchmarks / "gsm8k/train.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        label = None
        grams = _grams(row["question"], SHARED_GRAM)
        for number in sorted({owner for gram in grams for owner in owners.get(gram, ())}):
            own, other = (re.findall(r"\w+", text.lower()) for text in (row["question"], test[number]["question"]))
            if difflib.SequenceMatcher(None, own, other, autojunk=False).ratio() >= TRUE_OVERLAP:
                label = f"gsm8k/{number + 1}"
        kind = "GSM8K train" if label is None else "GSM8K train, true overlap"
        yield LabelledText(f"{row['question']}\n{row['answer']}", kind, label)


def other_negatives(data: Path) -> Iterator[LabelledText]:
    """Yield instruction data and prose in the style of test sets, English and Korean, that hold no item."""
    for row in json.loads((data / "sft/dolly_alpagasus/dolly_3k.json").read_text(encoding="utf-8")):
        yield LabelledText("\n".join(str(value) for value in row.values()), "instruction data", None)
    for line in (data / "sft/self_instruct/seed_tasks.jsonl").read_text(encoding="utf-8").splitlines():
        yield LabelledText(json.loads(line)["instruction"], "instruction data", None)
    for name in ("sft/korean_chatbot/ChatbotData.csv", "quality/korean_hate_speech/train.tsv"):
        lines = (data / name).read_text(encoding="utf-8").splitlines()[1:]
        for start in range(0, len(lines), 20):
            yield LabelledText("\n".join(lines[start : start + 20]), "Korean prose", None)


def paraphrases(data: Path) -> Iterator[LabelledText]:
    """Yield the rephrased items of GSM8K test, which n-grams are not expected to find."""
    path = data / "contamination/rephrase_gsm8k.jsonl"
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        yield LabelledText(json.loads(line)["text"], "paraphrase", f"gsm8k/{number}")
