from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from corpus.errors import UsageError
from corpus.stages import TextBatch, known_stages
from corpus.verdicts import failures, first_rule
from filters.url_lists import url_parts, url_words
from filters.urls import Urls, UrlsConfig


def made(folder: Path, lists: dict[str, str], **settings: Any) -> Urls:
    for name, text in lists.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    paths = {name: str(folder / f"{name}.txt") for name in lists}
    stage = Urls(UrlsConfig(**paths, **settings), "urls", "text")
    stage.prepare()
    return stage


def measured(stage: Urls, urls: list[Any]) -> dict[str, pa.Array]:
    records = pa.RecordBatch.from_arrays([pa.array(urls)], names=["user/url"])
    return stage.measure(TextBatch(pa.array(["text"] * len(urls)), np.ones(len(urls), np.bool_), records))


def verdicts(stage: Urls, urls: list[Any]) -> list[str]:
    names = [rule.name for rule in stage.rules()]
    found = first_rule(failures(stage.rules(), measured(stage, urls))).tolist()
    return ["kept" if rule < 0 else names[rule] for rule in found]


def test_domains_by_suffix_and_hosts_exactly(tmp_path: Path) -> None:
    stage = made(
        tmp_path, {"domains": "# listed\n\ufeffbad.example\n*.co.example\nMünchen.de\n", "hosts": "www.one.example\n"}
    )
    urls = {
        "https://bad.example/": "domains",
        "http://a.b.bad.example:8080/x?y#z": "domains",
        "https://user:word@BAD.example./": "domains",
        "//x.co.example": "domains",
        "bad.example/path": "domains",
        "https://www.xn--mnchen-3ya.de/": "domains",
        "https://notbad.example/": "kept",
        "https://bad.example.org/": "kept",
        "https://good.example/bad.example": "kept",
        "https://www.one.example/": "hosts",
        "https://one.example/": "kept",
        "https://a.www.one.example/": "kept",
    }
    assert dict(zip(urls, verdicts(stage, list(urls)), strict=True)) == urls


def test_urls_and_words(tmp_path: Path) -> None:
    stage = made(
        tmp_path, {"urls": "http://a.example/Page?q=1\n", "words": "casino\nпокер\n"}, maximum_words=0, missing="drop"
    )
    urls = ["https://A.example:443/Page?q=1#part", "https://a.example/page?q=1", None, " ", "http://x/CASINO-tips"]
    urls += ["http://x/casinos", "http://x/%D0%9F%D0%BE%D0%BA%D0%B5%D1%80", "http://[", "%", "http://x:/"]
    assert verdicts(stage, urls) == [
        *("urls", "kept", "missing", "missing", "maximum_words", "kept", "maximum_words", "kept", "kept", "kept")
    ]
    found = measured(stage, urls)
    assert found["listed"].to_pylist()[:5] == ["a.example/Page?q=1", None, None, None, "casino"]
    assert found["host"].to_pylist()[:5] == ["a.example", "a.example", None, None, "x"]
    soft = made(tmp_path, {"words": "one\ntwo\n"}, maximum_words=1)
    assert verdicts(soft, ["http://x/one/one", "http://x/one/two"]) == ["kept", "maximum_words"]


def test_a_column_that_no_record_has_is_missing(tmp_path: Path) -> None:
    stage = made(tmp_path, {"words": "a\n"}, column="link", missing="drop")
    assert verdicts(stage, ["http://a"]) == ["missing"]
    assert verdicts(stage, []) == []
    assert known_stages()["urls"] is Urls


@given(st.text(max_size=30) | st.lists(st.sampled_from(list("http:/\\@[]:80.#?%aü\u2488-")), max_size=30).map("".join))
def test_no_url_is_an_error(url: str) -> None:
    parts = url_parts(url)
    assert parts.normal.startswith(parts.host)
    assert all(url_words(url))


def test_long_hosts_take_no_time(tmp_path: Path) -> None:
    stage = made(tmp_path, {"domains": "bad.example\n"})
    assert verdicts(stage, ["http://" + "a." * 500_000 + "bad.example", "ü" * 100_000]) == ["domains", "kept"]


def test_fingerprint_follows_the_lists(tmp_path: Path) -> None:
    first = made(tmp_path, {"domains": "a.example\n"}).fingerprint()
    assert list(first) == ["domains"]
    assert made(tmp_path, {"domains": "b.example\n"}).fingerprint() != first


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "domains",
            "a.example\nhttp://b.example/\n",
            "urls.domains: .*line 2: found 'http://b.example/'; wanted a host",
        ),
        ("hosts", "a b\n", "urls.hosts: .*line 1"),
        ("words", "two words\n", "urls.words: .*wanted one word"),
        ("urls", "#only\n\n", "urls.urls: .*has no entry"),
    ],
)
def test_entries_that_cannot_match(tmp_path: Path, name: str, content: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        made(tmp_path, {name: content})


def test_lists_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"ok\nm\xfcnchen.de\n")
    for path, message in (("missing.txt", "No such file"), ("latin.txt", "line 2: not UTF-8"), (".", "directory")):
        stage = Urls(UrlsConfig(domains=str(tmp_path / path)), "urls", "text")
        with pytest.raises(UsageError, match=rf"urls\.domains: .*{message}"):
            stage.prepare()
    bare = Urls(UrlsConfig(), "urls", "text")
    for call in (bare.prepare, bare.fingerprint):
        with pytest.raises(UsageError, match="no list is given"):
            call()


def test_bad_settings() -> None:
    with pytest.raises(ValidationError, match="maximum_words"):
        UrlsConfig(maximum_words=-1)
