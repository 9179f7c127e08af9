import json
import time
from collections import Counter
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from corpus.findings import apply_edits, byte_spans, edits_of, in_stage
from corpus.stages import TextBatch, known_stages
from corpus.verdicts import failures
from filters import pii_tables as tables
from filters.pii import KINDS, Pii, PiiConfig
from filters.pii_address_reference import is_public_4
from filters.pii_reference import find_in_text
from filters.pii_spans import find_in_batch
from pipelines.cli import main
from tests.filters.pii_lines import HELD_OUT, LINES, labelled
from tests.filters.texts import HOSTILE, TEXTS, real_texts
from tests.pipelines.corpora import report, run, table, write_config

NAMES = [kind for kind, _, _ in KINDS]
EMAIL, IP_ADDRESS, PHONE_NUMBER, PAYMENT_CARD, IBAN = range(5)

WHOLE = [text[start:end] for text, spans in labelled(LINES + HELD_OUT) for start, end, _ in spans]
FRAGMENTS = (
    "0 1 9 00 12 34 44 (0) 20 415 555 2671 030 0171 1234 4111 1111 3782 822463 10005 1234567 + ( ) - . / : :: @ _ , = "
    "# % ~ ^ $ * ] [ | a b f x 2x F é я 世 한 으로 ０ ９ ＋ － ． ＠ ： （ ٠ ٩ ۴ – № § ° € com de xn-- // http:// "
    "mailto: tel Tel. phone no is 电话 тел version v DE89 de89 GB82 WEST 3704 8.8.8.8 10.0.0.1 256 2001 2a00 ffff "
    "::ffff: .. 2024 \0 \n \u00a0 \u3000"
).split(" ")
PIECES = st.one_of(
    st.sampled_from(FRAGMENTS), st.sampled_from(WHOLE), st.just(" "), st.characters(exclude_categories=["Cs"])
)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """Return private data with a few changes, among fragments."""
    text = draw(st.sampled_from(WHOLE))
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(text)))
        text = text[:place] + draw(PIECES) + text[place + draw(st.integers(0, 1)) :]
    return draw(PIECES) + text + draw(PIECES)


def found(texts: list[str], public_only: bool = True) -> list[list[tuple[int, int, int]]]:
    """Return start, end and kind of what the kernel finds in each text."""
    array = pa.array(texts, pa.string())
    rows, starts, stops, kinds = find_in_batch(array, np.ones(len(texts), np.bool_), public_only)
    places = byte_spans(array, rows, starts, stops, "", "flag")
    spans: list[list[tuple[int, int, int]]] = [[] for _ in texts]
    columns = (places.column("start").to_pylist(), places.column("end").to_pylist(), kinds.tolist())
    for row, *span in zip(rows.tolist(), *columns, strict=True):
        spans[row].append((span[0], span[1], span[2]))
    return spans


def expected(texts: list[str], public_only: bool = True) -> list[list[tuple[int, int, int]]]:
    return [find_in_text(text, public_only) for text in texts]


def pieces(text: str, **settings: Any) -> list[tuple[str, str]]:
    """Return kind and text of what is found in a text."""
    return [(NAMES[kind], text[start:end]) for start, end, kind in found([text], **settings)[0]]


def made(**settings: Any) -> Pii:
    stage = Pii(PiiConfig(**settings), "pii", "text")
    stage.prepare()
    return stage


def redacted(stage: Pii, texts: list[str]) -> list[str]:
    """Return texts as the stages behind would see them."""
    array = pa.array(texts, pa.string())
    findings = stage.judge(TextBatch(array, np.ones(len(texts), np.bool_))).findings
    assert findings is not None
    edited: list[str] = apply_edits(array, edits_of(in_stage(findings, "pii", "text"))).to_pylist()
    return edited


@given(st.lists(st.one_of(damaged(), st.lists(PIECES, max_size=16).map("".join), TEXTS), max_size=8), st.booleans())
def test_kernel_equals_reference_on_generated_texts(texts: list[str], public_only: bool) -> None:
    assert found(texts, public_only) == expected(texts, public_only)


def test_kernel_equals_reference_on_hostile_real_and_labelled_texts() -> None:
    texts = [
        *(text[:20_000] for text in HOSTILE),
        *real_texts()[::3],
        *(text for text, _ in labelled(LINES + HELD_OUT)),
    ]
    for public_only in (True, False):
        assert found(texts, public_only) == expected(texts, public_only)


# Of each kind what is found wrongly and what is missed: spelt-out addresses, versions and numbers without a hint.
@pytest.mark.parametrize(
    ("lines", "mistakes"),
    [
        pytest.param(LINES, [(0, 2), (1, 0), (0, 1), (0, 1), (0, 0)], id="read"),
        pytest.param(HELD_OUT, [(0, 1), (5, 0), (1, 9), (0, 0), (0, 0)], id="held out"),
    ],
)
def test_precision_and_recall_on_labelled_lines(
    lines: list[str], mistakes: list[tuple[int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    sentences = labelled(lines)
    right, wrong, missed = Counter[int](), Counter[int](), Counter[int]()
    for (_, wanted), got in zip(sentences, found([text for text, _ in sentences]), strict=True):
        right.update(kind for *_, kind in set(got) & set(wanted))
        wrong.update(kind for *_, kind in set(got) - set(wanted))
        missed.update(kind for *_, kind in set(wanted) - set(got))
    with capsys.disabled():
        print(f"\npii, {len(lines)} labelled lines:")  # noqa: T201
        for kind, name in enumerate(NAMES):
            marked, listed = right[kind] + missed[kind], right[kind] + wrong[kind]
            shares = f"precision {right[kind] / listed:.3f} recall {right[kind] / marked:.3f}"
            print(f"  {name:14} {marked:4} marked, {shares}")  # noqa: T201
    assert [(wrong[kind], missed[kind]) for kind in range(len(NAMES))] == mistakes


def test_there_are_enough_labelled_lines() -> None:
    sentences = labelled(LINES + HELD_OUT)
    assert len({text for text, _ in sentences}) == len(sentences) >= 300
    assert sum(not spans for _, spans in sentences) > 150
    assert min(Counter(kind for _, spans in sentences for *_, kind in spans).values()) > 30


@pytest.mark.parametrize(
    "unit",
    [
        *("a@", "@", "a@b.", "x@y.zz ", "user:pass@", "//a:b@c.dd", "é@é.é ", "1@", ".", "a."),
        *("1.", "1.1.1.1 ", "1.2.3.4.", "8.8.8.8 ", "1:", ":", "::", "f:", "2001:db8:", "2001:4860:4860::8888 "),
        *(
            "1",
            "1 ",
            "12 ",
            "1-",
            "1/",
            "1)",
            "(1",
            "+1 2 3 4 ",
            "+1",
            "+14155552671 ",
            "415-555-2671 ",
            "0171 1234567 ",
        ),
        *(
            "tel 1234567 ",
            "no 1234567 ",
            "tel no ",
            "0",
            "０",
            "٣ ",
            "1\u00a0",
            "4111 1111 1111 1111 ",
            "4111111111111111 ",
        ),
        *("DE89", "DE89 ", "de893704004405320130 ", "DE89 3704 0044 0532 0130 00 "),
    ],
)
def test_ten_megabytes_of_anything_take_less_than_a_second(unit: str) -> None:
    text = pa.array([(unit * (10_000_000 // len(unit.encode()) + 1))])
    start = time.process_time()
    find_in_batch(text, np.ones(1, np.bool_), True)
    assert time.process_time() - start < 1


def luhn(digits: str) -> str:
    """Return digits with their check digit, by the table of doubled digits."""
    total = sum("0516273849".index(digit) if place % 2 == 0 else int(digit) for place, digit in enumerate(digits[::-1]))
    return digits + str(-total % 10)


@given(st.sampled_from(["4", "51", "55", "2720", "6011", "3528", "62"]), st.integers(0, 10**15 - 1), st.integers(1, 9))
def test_card_numbers_need_their_check_digit(prefix: str, number: int, change: int) -> None:
    card = luhn((prefix + f"{number:015}")[:15])
    for text in (card, " ".join(card[place : place + 4] for place in range(0, 16, 4))):
        assert pieces(f"card {text}.") == [("payment_cards", text)]
        wrong = text[:-1] + str((int(text[-1]) + change) % 10)
        assert ("payment_cards", wrong) not in pieces(f"card {wrong}.")


@given(st.sampled_from(sorted(tables.IBAN_LENGTHS.items())), st.data())
def test_ibans_need_their_check_digits_and_length(entry: tuple[int, str], data: st.DataObject) -> None:
    length, countries = entry
    country = data.draw(st.sampled_from(countries.split(" ")))
    account = data.draw(st.text("0123456789ABCXYZ", min_size=length - 4, max_size=length - 4))
    number = int("".join(str(int(sign, 36)) for sign in account + country) + "00")
    iban = f"{country}{98 - number % 97:02}{account}"
    grouped = " ".join(iban[place : place + 4] for place in range(0, length, 4))
    for text in (iban, iban.lower(), grouped, grouped.replace(" ", "-")):
        assert ("ibans", text) in pieces(f"IBAN: {text}, thanks")
        assert "ibans" not in dict(pieces(f"IBAN: {text}7"))
        assert "ibans" not in dict(pieces(f"IBAN: X{text}"))
    wrong = f"{country}{(98 - number % 97) % 96 + 1:02}{account}"
    assert "ibans" not in dict(pieces(wrong)) or int(wrong[2:4]) % 97 == (98 - number % 97) % 97


@given(
    st.ip_addresses(v=4) | st.sampled_from([IPv4Address(text) for text in ("224.0.0.1", "192.88.99.1", "192.0.0.9")])
)
def test_public_addresses_are_those_that_ipaddress_calls_global(address: IPv4Address) -> None:
    # ipaddress calls multicast, the relays of 6to4 and two anycast addresses global; they are no one's.
    special = address.is_multicast or str(address).startswith(("192.88.99.", "192.0.0."))
    assert is_public_4(address) == (address.is_global and not special)


def test_version_six_addresses() -> None:
    local = "::1 fe80::1 fd00::1 2001:db8::1 3fff::1 ff02::1 ::ffff:10.0.0.1 64:ff9b::10.0.0.1 2001::1".split(" ")
    public = "2600:: 2a00:1450::8.8.8.8 ::ffff:8.8.8.8 64:ff9b::808:808 2003:0:0:1:2:3:4:5 2606:4700:4700::1111".split(
        " "
    )
    never = ":: a::b 1::2::3 2600:1:2:3:4:5:6 2600:1:2:3:4:5:6:7:8 2600::12345 2600::1.2.3 12:30:45 2600::g".split(" ")
    assert [pieces(f"at {text}.") for text in local + never] == [[]] * len(local + never)
    assert [pieces(f"at {text}.") for text in public] == [[("ip_addresses", text)] for text in public]
    assert [pieces(text, public_only=False) for text in local] == [[("ip_addresses", text)] for text in local]
    assert [pieces(text, public_only=False) for text in never] == [[]] * len(never)


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("4111111111111111@example.com", ["emails"]),
        ("call 0171 1234567.a@example.com", ["emails"]),
        ("+49 30 1234567 8.8.8.8", ["phone_numbers", "ip_addresses"]),
        ("DE89 3704 0044 0532 0130 00 0171 1234567", ["ibans"]),
        ("4111 1111 1111 1111 110171 1234567", ["payment_cards"]),
        ("010-1234-5678 4111111111111111", ["phone_numbers", "payment_cards"]),
        ("tel 4111111111111111", ["payment_cards"]),
        ("a@b.co,c@d.co;e@f.co", ["emails"] * 3),
        ("root@8.8.8.8", ["ip_addresses"]),
    ],
)
def test_kinds_give_way_to_each_other(text: str, spans: list[str]) -> None:
    assert [kind for kind, _ in pieces(text)] == spans


def test_what_happens_to_each_kind_follows_the_settings() -> None:
    text = "Write to a@example.com or +1 415-555-0132, from 8.8.8.8, card 4111 1111 1111 1111, DE89370400440532013000."
    token = "Write to <EMAIL> or <PHONE_NUMBER>, from <IP_ADDRESS>, card <PAYMENT_CARD>, <IBAN>."
    assert redacted(made(), [text, "nothing"]) == [token, "nothing"]
    mixed = made(
        emails="redact", email_replacement="email@example.com", ip_addresses="flag", phone_numbers="off", ibans="drop"
    )
    assert redacted(mixed, [text])[0] == text.replace("a@e", "email@e").replace("4111 1111 1111 1111", "<PAYMENT_CARD>")
    judgement = mixed.judge(TextBatch(pa.array([text, "", "b@example.com"]), np.ones(3, np.bool_)))
    assert {name: values.to_pylist() for name, values in judgement.signals.items()} == {
        name: [1, 0, int(name == "emails")] for name in NAMES
    }
    assert judgement.findings is not None
    assert [(row["rule"], row["action"]) for row in judgement.findings.to_pylist()] == [
        *[("emails", "redact"), ("ip_addresses", "flag"), ("payment_cards", "redact"), ("ibans", "drop")],
        ("emails", "redact"),
    ]
    assert [rule.name for rule in mixed.rules()] == ["ibans", "empty_after_edit"]
    assert failures(mixed.own_rules(), judgement.signals).tolist() == [1, 0, 0]
    off = made(**dict.fromkeys(NAMES, "off"))
    assert (off.edits(), off.rules()) == (False, ())
    assert off.judge(TextBatch(pa.array([text]), np.ones(1, np.bool_))).signals == made().judge(
        TextBatch(pa.array([text]), np.ones(1, np.bool_))
    ).signals  # fmt: skip
    assert known_stages()["pii"] is Pii


def test_findings_do_not_hold_what_was_found() -> None:
    texts = [text for text, _ in labelled(LINES)]
    findings = (
        made(emails="drop", ibans="flag").judge(TextBatch(pa.array(texts), np.ones(len(texts), np.bool_))).findings
    )
    assert findings is not None
    for name in ("value", "related", "detail"):
        assert findings.column(name).null_count == findings.num_rows > 150
    replacements = set(findings.column("replacement").to_pylist())
    assert replacements == {None, "<IP_ADDRESS>", "<PHONE_NUMBER>", "<PAYMENT_CARD>"}
    assert not (set(WHOLE) & {value for row in findings.to_pylist() for value in row.values()})


@given(st.lists(st.one_of(damaged(), TEXTS), max_size=6))
def test_each_finding_becomes_one_token(texts: list[str]) -> None:
    stage = made(public_ip_only=False)
    once = redacted(stage, texts)
    found_once = found(texts, public_only=False)
    assert [one for one, spans in zip(once, found_once, strict=True) if not spans] == [
        text for text, spans in zip(texts, found_once, strict=True) if not spans
    ]
    for one, text, spans in zip(once, texts, found_once, strict=True):
        counts = Counter(kind for *_, kind in spans)
        for kind, token in enumerate(["<EMAIL>", "<IP_ADDRESS>", "<PHONE_NUMBER>", "<PAYMENT_CARD>", "<IBAN>"]):
            assert one.count(token) - text.count(token) == counts[kind]


def test_masked_and_null_rows_and_slices() -> None:
    texts = pa.array(["left@out.com", "a@b.co", None, "c@d.co", "é e@f.co"]).slice(1)
    judgement = made().judge(TextBatch(texts, np.array([True, True, False, True])))
    assert judgement.signals["emails"].to_pylist() == [1, 0, 0, 1]
    assert judgement.findings is not None
    assert [(row["row"], row["start"], row["end"]) for row in judgement.findings.to_pylist()] == [(0, 0, 6), (3, 2, 8)]
    none = made().judge(TextBatch(pa.array([], pa.string()), np.zeros(0, np.bool_)))
    assert none.findings is not None
    assert none.findings.num_rows == len(none.signals["ibans"]) == 0


def test_tables_are_sound() -> None:
    codes = [code for group in tables.NATIONAL_LENGTHS.values() for code in group.split(" ")]
    assert len(set(codes)) == len(codes) > 200
    assert not [(one, two) for one in codes for two in codes if one != two and two.startswith(one)]
    assert set(tables.ZERO_KEPT.split(" ")) <= set(codes)
    assert sum(len(group.split(" ")) for group in tables.IBAN_LENGTHS.values()) == np.count_nonzero(
        tables.iban_lengths()
    )
    for words in (tables.PHONE_WORDS, tables.PHONE_FILLERS, tables.VERSION_WORDS):
        assert all(word == word.strip() and not word[-1].isdigit() for word in tables.word_list(words))


@pytest.mark.parametrize(
    "settings",
    [{"emails": "remove"}, {"phone_numbers": None}, {"email_replacement": 7}, {"public_ip_only": "yes"}, {"mail": 1}],
)
def test_settings_that_cannot_be_used(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(settings))):
        PiiConfig(**settings)


def test_q07_version_is_no_address(shared: Path, tmp_path: Path) -> None:
    case = shared / "cases" / "q07-version-is-no-address" / "input.jsonl"
    before = {row["id"]: row["text"] for row in map(json.loads, case.read_text(encoding="utf-8").splitlines())}
    output = tmp_path / "run"
    assert run(write_config(tmp_path / "config.yaml", [str(case)], output, ["pii"], id_column="id")) == 0
    assert main(["verify", str(output)]) == 0
    after = {row["record_id"]: row["text"] for row in table(output, "curated")}
    assert {name: text for name, text in after.items() if text != before[name]} == {
        "i1": "The name server answers at <IP_ADDRESS> and at <IP_ADDRESS>:8080 today.",
        "i5": "Write to <EMAIL>, or to <EMAIL>.",
        "i8": "<IP_ADDRESS> is an address, 12:30:45 is a time.",
    }
    counts = {row["record_id"]: row["pii.emails"] + row["pii.ip_addresses"] for row in table(output, "signals")}
    assert counts == {name: text.count("<") for name, text in after.items()}
    assert len(table(output, "evidence")) == sum(counts.values()) == report(output)["stages"][1]["edited"] + 2


def test_a_pair_is_searched_field_by_field(tmp_path: Path) -> None:
    pair = {
        "prompt": "My phone is 0171 1234567, write to a@example.com",
        "response": "Noted: 8.8.8.8 and b@example.com.",
    }
    (tmp_path / "pairs.jsonl").write_text(json.dumps(pair) + "\n", encoding="utf-8")
    output = tmp_path / "run"
    columns = {"prompt_column": "prompt", "response_column": "response"}
    assert run(write_config(tmp_path / "config.yaml", [str(tmp_path / "pairs.jsonl")], output, ["pii"], **columns)) == 0
    (row,) = table(output, "curated")
    assert row["prompt"] == "My phone is <PHONE_NUMBER>, write to <EMAIL>"
    assert row["response"] == "Noted: <IP_ADDRESS> and <EMAIL>."
    (signals,) = table(output, "signals")
    assert (signals["pii.emails"], signals["pii.phone_numbers"], signals["pii.edits"]) == (2, 1, 4)
    assert [(row["field"], row["rule"]) for row in table(output, "evidence")] == [
        *[("prompt", "phone_numbers"), ("prompt", "emails"), ("response", "ip_addresses"), ("response", "emails")]
    ]
