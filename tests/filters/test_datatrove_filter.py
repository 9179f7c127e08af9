import json
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from corpus.errors import ThresherError, UsageError
from corpus.findings import apply_edits
from corpus.stages import Judgement, TextBatch, known_stages
from corpus.text import words
from corpus.verdicts import failures
from filters import datatrove_classes
from filters.datatrove_filter import Datatrove, DatatroveConfig
from tests.filters.texts import HOSTILE, real_texts

pytest.importorskip("datatrove", reason="datatrove is not installed: pip install 'thresher[datatrove]'")
from datatrove.data import Document
from datatrove.pipeline.filters.base_filter import BaseFilter

FILTERS = "datatrove.pipeline.filters"


def made(name: str, prepared: bool = True, **settings: Any) -> Datatrove:
    stage = Datatrove(DatatroveConfig.model_validate({"filter": name, **settings}), "trove", "text")
    if prepared:
        stage.prepare()
    return stage


def documents(texts: list[str], **columns: list[Any]) -> pa.RecordBatch:
    own = {"record_id": [f"r{row}" for row in range(len(texts))], "source": ["web"] * len(texts), "text": texts}
    return pa.RecordBatch.from_pydict({**own, **columns})


def judged(
    stage: Datatrove, records: pa.RecordBatch, alive: list[bool] | None = None, languages: list[Any] | None = None
) -> Judgement:
    mask = np.array([True] * records.num_rows if alive is None else alive, np.bool_)
    labels = None if languages is None else pa.array(languages, pa.string())
    return stage.judge(TextBatch(records.column("text"), mask, records, labels))


def verdicts(judgement: Judgement) -> list[tuple[int | None, str | None]]:
    return list(zip(*(judgement.signals[name].to_pylist() for name in ("kept", "reason")), strict=True))


def errors(judgement: Judgement) -> list[str | None]:
    assert judgement.errors is not None
    return judgement.errors.to_pylist()


def with_edits(judgement: Judgement, texts: list[str]) -> list[str]:
    assert judgement.findings is not None
    return apply_edits(pa.array(texts, pa.string()), judgement.findings).to_pylist()


def of_datatrove(reference: BaseFilter, texts: list[str]) -> list[tuple[bool, str | None, str]]:
    """Return verdict, reason and text as datatrove itself gives them, by running its pipeline step."""
    found: list[tuple[bool, str | None, str]] = []
    for text in texts:
        document = Document(text, "id", metadata={"language": "en"})
        left: list[Document] = []

        class Excluded:
            def __enter__(self) -> Any:
                return self

            def __exit__(self, *_: Any) -> None: ...

            def write(self, document: Document, rank: int, into: list[Document] = left) -> None:
                into.append(document)

        reference.exclusion_writer = Excluded()
        kept = list(reference.run(iter([document])))
        assert len(kept) + len(left) == 1
        found.append((bool(kept), None if kept else left[0].metadata.get("filter_reason"), document.text))
    return found


@pytest.fixture
def our_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let datatrove split words and sentences without the models of other packages."""
    split: Callable[..., list[str]] = lambda text, language=None: words(text)  # noqa: E731
    sentences: Callable[..., list[str]] = lambda text, language=None: [s for s in text.split(".") if s.strip()]  # noqa: E731
    for module in ("gopher_quality_filter", "gopher_repetition_filter", "fineweb_quality_filter"):
        monkeypatch.setattr(f"{FILTERS}.{module}.split_into_words", split)
    monkeypatch.setattr(f"{FILTERS}.c4_filters.split_into_sentences", sentences)


@pytest.mark.usefixtures("our_words")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("GopherQualityFilter", {}),
        ("GopherQualityFilter", {"min_doc_words": 5, "max_avg_word_length": None, "stop_words": ["import", "def"]}),
        ("GopherRepetitionFilter", {"top_n_grams": [[2, 0.1], [3, 0.1]]}),
        ("FineWebQualityFilter", {"stop_chars": [".", "!"], "short_line_length": 10}),
        ("C4QualityFilter", {"min_num_sentences": 1}),
        (
            "C4QualityFilter",
            {"filter_no_terminal_punct": False, "min_num_sentences": -1, "filter_curly_bracket": False},
        ),
        ("C4ParagraphFilter", {}),
        ("RegexFilter", {"regex_exp": "(?i)test"}),
    ],
)
def test_verdict_reason_and_text_are_those_of_datatrove(name: str, arguments: dict[str, Any]) -> None:
    texts = [*(text for text in HOSTILE if len(text) < 50_000), *real_texts()[::6]]
    texts += ["A line of prose.[1]\n  Another line of the prose. \nNo end\nMore of the same prose here!\n" * 3]
    texts += ["Lorem ipsum dolor.", "\n".join(["x" * 300 + "."] * 3), "import a\ndef b" + " word" * 9]
    stage = made(name, arguments=arguments)
    judgement = judged(stage, documents(texts))
    built = dict(arguments)
    if "stop_chars" in built:
        built["stop_chars"] = tuple(built["stop_chars"])
    reference = datatrove_classes.build_filter(name, built)
    raised = {row for row, error in enumerate(errors(judgement)) if error is not None}
    compared = [row for row in range(len(texts)) if row not in raised]
    expected = of_datatrove(reference, [texts[row] for row in compared])
    found = verdicts(judgement)
    changed = with_edits(judgement, texts)
    assert [(bool(found[row][0]), found[row][1]) for row in compared] == [(kept, why) for kept, why, _ in expected]
    assert [changed[row] for row in compared] == [
        text if kept else texts[row] for row, (kept, _, text) in zip(compared, expected, strict=True)
    ]
    for row in raised:
        with pytest.raises(ZeroDivisionError):
            reference.filter(Document(texts[row], "id"))
    assert {kept for kept, _, _ in expected} == {True, False}


def test_gopher_quality_is_that_of_datatrove_with_its_own_word_splitter() -> None:
    pytest.importorskip("spacy", reason="datatrove splits English words with spaCy, which is not installed")
    texts = [text for text in real_texts()[::8] if words(text)]
    prose = "The bridge of the old town was built with stone, and that is what the people of the valley say. "
    texts += [prose * 5, (prose + "# # # # # ") * 5, f"{prose}...\n" * 5, f"- {prose}\n" * 5, "a of to be the " * 20]
    judgement = judged(made("GopherQualityFilter"), documents(texts))
    expected = of_datatrove(datatrove_classes.build_filter("GopherQualityFilter", {}), texts)
    assert errors(judgement) == [None] * len(texts)
    assert verdicts(judgement) == [(int(kept), reason) for kept, reason, _ in expected]
    assert len({reason for _, reason, _ in expected}) > 3


def test_reasons_name_the_rule() -> None:
    stage = made("C4ParagraphFilter")
    judgement = judged(stage, documents(["short", "x" * 250 + "\n" + "y" * 250 + "\n" + "z" * 250]))
    assert verdicts(judgement) == [(0, "< 3 paragraphs"), (1, None)]
    assert [rule.name for rule in stage.rules()] == ["filter", "empty_after_edit"]
    assert stage.rules()[0].named_by == "reason"
    own = {name: judgement.signals[name] for name in ("kept", "reason")}
    assert failures(stage.own_rules(), own).tolist() == [1, 0]
    assert verdicts(judged(made("RegexFilter", arguments={"regex_exp": "a"}), documents(["a", "b"]))) == [
        (0, None),
        (1, None),
    ]


@pytest.mark.usefixtures("our_words")
def test_a_dropped_text_is_not_edited_and_dead_rows_are_not_shown() -> None:
    stage = made("C4QualityFilter", arguments={"min_num_sentences": 2})
    texts = ["Menu\nThis is a line of it.\nThis is another one.", "Menu\nThis is a line of it.", "Menu\nA\nB"]
    judgement = judged(stage, documents(texts), [True, True, False])
    assert verdicts(judgement) == [(1, None), (0, "too_few_sentences"), (None, None)]
    assert judgement.findings is not None
    (span,) = judgement.findings.to_pylist()
    assert (span["row"], span["start"], span["end"], span["action"]) == (0, 0, 5, "cut")
    assert (span["rule"], span["replacement"]) == ("filter", None)


class Odd(BaseFilter):
    """Does what filters may do, as the text says."""

    def filter(self, doc: Document) -> Any:
        actions: dict[str, Any] = {
            "boom": lambda: 1 / 0,
            "three": lambda: (False, "a", "b"),
            "number": lambda: (False, 7),
            "bytes": lambda: setattr(doc, "text", b"x") or True,
            "surrogate": lambda: setattr(doc, "text", "\ud800") or True,
            "upper": lambda: setattr(doc, "text", "UPPER!") or True,
            "lines": lambda: (False, "two\nlines " + "x" * 200),
            "numpy": lambda: np.bool_(False),
            "metadata": lambda: (False, json.dumps(doc.metadata, sort_keys=True)),
            "net": lambda: (_ for _ in ()).throw(ConnectionError("no route")),
        }
        return actions.get(doc.text, lambda: True)()


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> Datatrove:
    import datatrove.pipeline.filters

    monkeypatch.setattr(datatrove.pipeline.filters, "RegexFilter", lambda regex_exp: Odd())
    return made("RegexFilter", arguments={"regex_exp": "x"})


def test_what_filters_may_do(odd: Datatrove) -> None:
    texts = ["boom", "three", "number", "bytes", "surrogate", "upper", "lines", "numpy", "fine"]
    judgement = judged(odd, documents(texts))
    assert verdicts(judgement) == [
        (None, None), (None, None), (0, "7"), (None, None), (None, None), (1, None),
        (0, "two lines " + "x" * 89 + "…"), (0, None), (1, None),
    ]  # fmt: skip
    found = errors(judgement)
    assert [row for row, error in enumerate(found) if error is not None] == [0, 1, 3, 4]
    assert found[0] == "ZeroDivisionError: division by zero"
    assert found[3] == "TypeError: the filter made a bytes of the text"
    assert with_edits(judgement, texts)[5] == "UPPER!"


def test_what_filters_see(odd: Datatrove) -> None:
    def seen(records: pa.RecordBatch, languages: list[Any] | None = None) -> Any:
        return json.loads(str(verdicts(judged(odd, records, languages=languages))[0][1]))

    columns = {"user/url": ["u"], "user/language": ["de"], "user/none": [None]}
    assert seen(documents(["metadata"], **columns)) == {"url": "u", "language": "de", "source": "web"}
    assert seen(documents(["metadata"], **columns), ["fr"])["language"] == "fr"
    assert seen(documents(["metadata"], **columns), [None])["language"] == "de"
    assert seen(documents(["metadata"], json=['{"source": "own"}'])) == {"source": "own"}


def test_bad_words_by_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def word_list(url: str, **_: Any) -> str:
        asked.append(url.rpartition("/")[2])
        (tmp_path / "list").write_text("rotten\n")
        return str(tmp_path / "list")

    monkeypatch.setattr(f"{FILTERS}.c4_filters.cached_asset_path_or_download", word_list)
    texts = ["A rotten day.", "A good day.", "Ein rotten Tag.", "x rotten"]
    stage = made("C4BadWordsFilter", with_language=True)
    assert stage.uses_languages()
    judgement = judged(stage, documents(texts), languages=["en", "en", "de", "no such"])
    bad = (0, "document_removed_with_badwords")
    assert verdicts(judgement) == [bad, (1, None), bad, (None, None)]
    assert 'not badwords list available for "no such"' in str(errors(judgement)[3])
    assert asked == ["en", "de"]
    some = made("C4BadWordsFilter", arguments={"keep_fraction": 0.5, "seed": 3})
    many = [f"A rotten day, number {number}." for number in range(400)]
    kept = [keep for keep, _ in verdicts(judged(some, documents(many)))]
    assert 150 < sum(kept) < 250  # 200, with a standard deviation of 10
    assert [keep for keep, _ in verdicts(judged(some, documents(many[::-1])))] == kept[::-1]


def test_a_fault_of_the_machine_is_no_dead_letter(odd: Datatrove) -> None:
    with pytest.raises(ThresherError, match=r"^trove: RegexFilter on r1: ConnectionError: no route$"):
        judged(odd, documents(["fine", "net"]))


def test_filters_that_draw_depend_on_seed_and_text_only() -> None:
    texts = [f"text {number}" for number in range(600)]

    def kept(texts: list[str], **arguments: Any) -> list[Any]:
        return [keep for keep, _ in verdicts(judged(made("SamplerFilter", arguments=arguments), documents(texts)))]

    once = kept(texts, rate=0.3)
    assert 130 < sum(once) < 230  # 180, with a standard deviation of 11
    assert kept(texts[::-1], rate=0.3) == once[::-1]
    assert kept(texts[100:200], rate=0.3) == once[100:200]
    assert kept(texts, rate=0.3, seed=0) == once != kept(texts, rate=0.3, seed=1)


@pytest.mark.parametrize(
    ("settings", "where", "message"),
    [
        (
            {"filter": "GopherQuality"},
            "filter",
            r"datatrove \S+ has no filter 'GopherQuality'; did you mean GopherQ\w+F",
        ),
        ({"filter": "nothing_of_it"}, "filter", "it has C4BadWordsFilter, "),
        ({"filter": "LambdaFilter"}, "filter", "LambdaFilter takes a Python function; use the stage python"),
        ({"filter": "BaseFilter"}, "filter", "BaseFilter is the base of filters"),
        ({"filter": "RegexFilter"}, "arguments", "RegexFilter needs regex_exp"),
        ({"filter": "RegexFilter", "arguments": {}}, "arguments", "RegexFilter needs regex_exp; write arguments: {reg"),
        (
            {"filter": "GopherQualityFilter", "arguments": {"min_doc_word": 5}},
            "arguments",
            "takes no argument 'min_doc_word'; did you mean min_doc_words",
        ),
        ({"filter": "C4ParagraphFilter", "arguments": {"a": 1}}, "arguments", "takes no argument 'a'; it takes none"),
        (
            {"filter": "C4ParagraphFilter", "arguments": {"exclusion_writer": None}},
            "arguments",
            "exclusion_writer has no use here: the ledger",
        ),
        ({"filter": "SamplerFilter", "arguments": {"seed": None}}, "arguments", "seed is None; wanted a whole number"),
        ({"filter": "SamplerFilter", "arguments": {"seed": -1}}, "arguments", "seed is -1; wanted"),
        ({"filter": "SamplerFilter", "field": "both"}, "field", "'text', 'prompt' or 'response'"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], where: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message) as caught:
        DatatroveConfig.model_validate(settings)
    assert [error["loc"] for error in caught.value.errors()] == [(where,)]


def test_every_filter_of_datatrove_is_known() -> None:
    import datatrove.pipeline.filters as package

    classes = {
        name: found
        for name, found in vars(package).items()
        if isinstance(found, type) and issubclass(found, BaseFilter)
    }
    assert set(datatrove_classes.filter_sources()) == set(classes)
    for name in classes:
        assert "exclusion_writer" in datatrove_classes.filter_arguments(name)
    assert datatrove_classes.filter_arguments("RegexFilter")["regex_exp"].required
    assert datatrove_classes.filter_arguments("FineWebQualityFilter")["stop_chars"].wants_tuple
    assert not datatrove_classes.filter_arguments("FastTextClassifierFilter")["keep_labels"].wants_tuple


def test_what_every_record_would_fail_on_is_one_error() -> None:
    for name, arguments, message in (
        ("RegexFilter", {"regex_exp": "("}, "error"),
        ("GopherQualityFilter", {"language": "no_such_language"}, "no_such_language"),
        ("FastTextClassifierFilter", {"model_url": "/no/such/model.bin", "keep_labels": ["a", 0.5]}, "(model|fastt)"),
        ("SamplerFilter", {"rate": "half"}, "TypeError"),
    ):
        with pytest.raises(UsageError, match=rf"^trove: {name} cannot be used here: .*{message}") as caught:
            made(name, arguments=arguments)
        assert "\n" not in str(caught.value)


def test_without_datatrove_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    stage = made("SamplerFilter", prepared=False)
    datatrove_classes.filter_sources.cache_clear()
    monkeypatch.setattr(datatrove_classes.metadata, "version", missing)
    with pytest.raises(
        ValidationError, match=r"not installed in this Python; install it with: pip install 'thresher\["
    ):
        DatatroveConfig(filter="SamplerFilter")
    with pytest.raises(UsageError, match=r"^trove\.filter: datatrove is not installed"):
        stage.fingerprint()


def test_the_fingerprint_has_the_version_and_the_files(tmp_path: Path) -> None:
    model = tmp_path / "model.bin"
    model.write_bytes(b"a")
    arguments = {"model_url": str(model), "keep_labels": ["a", 0.5]}
    stage = made("FastTextClassifierFilter", prepared=False, arguments=arguments)
    before = stage.fingerprint()
    assert before["datatrove"] == metadata.version("datatrove")
    model.write_bytes(b"b")
    assert before["arguments.model_url"] != stage.fingerprint()["arguments.model_url"]
    for pattern in ("x" * 5000, "a\0b", "."):
        found = made("RegexFilter", prepared=False, arguments={"regex_exp": pattern}).fingerprint()
        assert list(found) == ["datatrove"]


def test_checking_a_config_imports_no_datatrove() -> None:
    code = (
        "import sys; from filters.datatrove_filter import DatatroveConfig as C\n"
        "C.model_validate({'filter': 'GopherQualityFilter', 'arguments': {'min_doc_words': None}})\n"
        "sys.exit(any(name.split('.')[0] in ('datatrove', 'numpy', 'pyarrow') for name in sys.modules))"
    )
    folder = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=folder, timeout=60).returncode == 0


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), max_size=6))
@settings(max_examples=50)
def test_any_text_gets_a_verdict_or_an_error(texts: list[str]) -> None:
    records = pa.RecordBatch.from_arrays([pa.array(texts, pa.string())] * 3, names=["record_id", "source", "text"])
    judgement = judged(made("C4ParagraphFilter"), records)
    for (kept, _), error in zip(verdicts(judgement), errors(judgement), strict=True):
        assert (kept is None) == (error is not None)


def test_the_stage_is_known_and_says_that_it_is_slow() -> None:
    assert known_stages()["datatrove"] is Datatrove
    assert Datatrove.speed == "per record, in Python"
