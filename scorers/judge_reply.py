"""Read the score in what a judge said: JSON, a number by itself, or a number in prose of several languages.

A number counts only where the reply says that it is the score: the first line is nothing else, a label stands before it
(``Score: 4``, ``점수는 4점``), it is a fraction of the scale (``4/5``), or a verb of rating leads to it (``I rate this
4``). Counts of mistakes, the scale itself, its legend, bounds and ranges are not scores. Whatever stays doubtful has
a reason instead of a score; nothing is clamped to the scale or converted from another.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import unicodedata2

from corpus.case_folding import fold

NO_ANSWER = "no_answer"
UNPARSABLE = "unparsable"
AMBIGUOUS = "ambiguous"
OUT_OF_RANGE = "out_of_range"
OTHER_SCALE = "other_scale"
CUT_OFF = "cut_off"

LONGEST_REPLY = 10_000
"""Characters that are looked at."""

Reading = tuple[float | None, str | None]

# Not note, nota and mark: they also begin remarks that count something.
_LABELS = (
    "score|rating|grade|점수|평점|평가|정확도|정확성|유용성|품질|评分|評分|分数|分數|得分|准确性|準確性|质量|スコア|評価|点数|得点|正確性|"
    "punktzahl|bewertung|genauigkeit|puntuación|puntuacion|calificación|calificacion|precisión|pontuação|punteggio|"
    "précision|exactitude|оценка|балл|точность|النتيجة|الدرجة|स्कोर|अंक|puan|điểm|skor|ocena|cijfer|betyg"
)
_FILLING = r"[\s:=>\"'()\[\]]*"
_IS = "is|was|as|at|of|be|would be|equals|ist|est|es|é|è|wynosi|är|это|는|은|이|가|が|は|为|為|是"
_LABELLED = (
    r"(?<![a-z0-9_])(?:LABEL)s?(?:\s+(?:for|in|of)\s+[a-z ]{1,30}?)?[\])]*\s*(?:[-–—]\s+)?"
    rf"{_FILLING}(?:(?:{_IS}){_FILLING})?(?:an?\s+)?$"
)
_EXTREME = (
    r"(?:max|maximum|min|minimum|highest|lowest|best|worst|full|perfect|top|possible|각|최대|최고|만점|最高|满分)\W*$"
)
_RATES = re.compile(
    r"\b(?:rate|rated|scored|graded|give|given|gave|giving|assign|assigned|award|awarded|deserves|deserve|merits|gets|"
    r"earns|receives)\b[^.!?\n\d]{0,40}$",
    re.ASCII,
)
_DENIED = re.compile(r"(?:\b(?:not|cannot|never|unable|without|nicht|pas)\b|n['’]t\b)", re.ASCII)
_BOUND = re.compile(
    r"(?:[<>≤≥~≈]|\b(?:less|more|fewer|lower|higher|greater|better|worse) than|\b(?:below|above|under|over|at least|"
    r"at most|up to|nearly|almost|about|around|approximately))\s*(?:an?\s+)?$",
    re.ASCII,
)
_LESS = re.compile(r"deduct|subtract|minus|lost|loses|감점|깎|減点|扣|减", re.ASCII)
_BETWEEN = r"(?:-|–|—|~|to|through|or|and|bis|oder|ou|до|или|または|か|から|에서|또는|到|至|或)"
_RANGE_AFTER = re.compile(rf"\s*(?:점|点|分)?\s*{_BETWEEN}\s*(?=[-+]?\.?\d)", re.ASCII)
_HALF_AFTER = re.compile(
    r"\s*(?:점|点|分)?\s*(?:and a half|et demie?|y medio|einhalb|с половиной|半|반(?!응|영|면|복|드))"
)
_FRACTION_AFTER = re.compile(
    r"\s*(?:점|点|分|points?|stars?|Punkte)?\s*(?:/|out of|von|sur|su|de|из)\s*(?=\d)(?!\d+\s*/)", re.ASCII
)
_OUT_OF_BEFORE = re.compile(r"(?:/|out of|von|sur|из|满分|滿分|満点|만점)[\s:]*$", re.ASCII)
_FULL_AFTER = re.compile(r"\s*(?:점|点|分)?\s*(?:만점|満点|满分|滿分)")
_LEGEND_AFTER = re.compile(r"\s*(?:=|(?:means?|meaning|being|stands for|is the (?:best|worst|highest|lowest))\b)")
_UNIT_AFTER = re.compile(r"\s*(?:점|点|分)\s*(?:입니다|이다|이에요|예요|을|を|です|だ|$|[.!。\n])")
_THINKING = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE | re.ASCII)
_TOKEN = re.compile(r"(?<![0-9A-Za-z_.,])(?:\d+(?:[.,]\d+)*|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
_SIGN = re.compile(r"(?:^|[^0-9A-Za-z_)\]])([-+])$", re.ASCII)
_TORN = re.compile(r"\"score\"\s*:\s*(?:\"([^\"\n]{1,20})\"|([-+.\deE]+)\s*[,}\n])", re.ASCII | re.IGNORECASE)
_PLAIN = str.maketrans(
    {
        "٫": ".",
        "．": ".",
        "，": ",",
        "：": ":",
        "／": "/",
        "−": "-",
        "－": "-",
        "＝": "=",
        "*": " ",
        "_": " ",
        "`": " ",
        "#": " ",
    }
)


@dataclass(frozen=True)
class _Number:
    """A number in the reply: its place in the text (sign included), and its value, None where it is none."""

    start: int
    end: int
    value: float | None


@dataclass(frozen=True)
class _Candidate:
    """What may be the score, at a place of the text: a number, a fraction or a range."""

    start: int
    end: int
    reading: Reading
    is_fraction: bool = False


def read_score(reply: str | None, scale: tuple[float, float], dimension: str, cut: bool = False) -> Reading:
    """Return (score, None), or (None, reason) where the reply does not say one score within the scale.

    Args:
        reply: what the judge said.
        scale: lowest and highest score.
        dimension: what was judged; a number with this label goes before others.
        cut: whether the server ended the reply early; a number at its end may then lack digits.
    """
    text = _THINKING.sub("", reply or "").strip()
    if len(text) > LONGEST_REPLY:
        text, cut = text[:LONGEST_REPLY], True
    if not text:
        return None, CUT_OFF if cut else NO_ANSWER
    found = _from_json(text, scale, dimension)
    if found is None:
        found = _from_text(text, scale, dimension, cut or _is_torn(text))
    value, reason = found
    if value is not None and not scale[0] <= value <= scale[1]:
        return None, OUT_OF_RANGE
    if cut and reason in (UNPARSABLE, AMBIGUOUS):
        return None, CUT_OFF
    return value, reason


def _is_torn(text: str) -> bool:
    """Say whether a text begins as JSON and does not end as such."""
    return text.startswith(("{", "```json", "```{")) and not text.rstrip("` \n").endswith("}")


def _from_json(text: str, scale: tuple[float, float], dimension: str) -> Reading | None:
    """Return the score in the JSON objects of a text, or why there is none; None where no object has one."""
    readings = []
    for found in _objects(text):
        names = {str(key).strip().lower(): value for key, value in found.items()}
        for name in (dimension.lower(), "score", "rating"):
            if name in names:
                readings.append(_json_value(names[name], scale, dimension))
                break
    if not readings and (torn := _TORN.search(text)):
        readings.append(_json_value(torn[1] or torn[2], scale, dimension))
    if not readings:
        return None
    return readings[0] if len(set(readings)) == 1 else (None, AMBIGUOUS)


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in a text, those inside others left out."""
    decoder = json.JSONDecoder()
    place = text.find("{")
    while place >= 0:
        try:
            value, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            end = place + 1
        else:
            yield value
        place = text.find("{", end)


def _json_value(value: Any, scale: tuple[float, float], dimension: str) -> Reading:
    if isinstance(value, str):
        return _from_text(value.strip(), scale, dimension, False)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None, UNPARSABLE
    # Beyond the largest float, or NaN, which some servers write as such.
    number = float(value) if isinstance(value, float) or abs(value) < 1 << 53 else math.inf
    return (None, UNPARSABLE) if math.isnan(number) else (number, None)


def _plain(text: str) -> str:
    """Return a text with ASCII digits in the place of those of other scripts, and without marks of emphasis."""
    changed = text.translate(_PLAIN)
    if changed.isascii():
        return changed
    digits = (unicodedata2.decimal(one, None) if one > "\x7f" else None for one in changed)
    return "".join(one if digit is None else str(digit) for one, digit in zip(changed, digits, strict=True))


def _numbers(text: str) -> list[_Number]:
    found = []
    for match in _TOKEN.finditer(text):
        after = text[match.end() : match.end() + 1]
        sign = _SIGN.search(text[max(0, match.start() - 2) : match.start()])
        start = match.start() - 1 if sign else match.start()
        if "A" <= after.upper() <= "Z":
            # 1st, 5x: no number by itself. In scripts other than Latin, units are written without a space.
            continue
        value = _value(match[0])
        if after and unicodedata2.category(after) in ("No", "Nl"):
            value = None
        found.append(_Number(start, match.end(), -value if value is not None and sign and sign[1] == "-" else value))
    return found


def _value(digits: str) -> float | None:
    """Return the value of digits with points or commas; a comma before one or two last digits is a decimal one."""
    whole, *parts = re.split(r"[.,]", digits)
    commas = digits.count(",")
    if commas == 1 and len(parts) == 1 and len(parts[0]) <= 2:
        return float(f"{whole}.{parts[0]}")
    if commas and (digits.count(".") > 1 or any(len(part) != 3 for part in parts[:commas])):
        return None
    if digits.count(".") > 1:
        return None
    return float(digits.replace(",", ""))


def _from_text(text: str, scale: tuple[float, float], dimension: str, cut: bool) -> Reading:
    text = fold(_plain(text)).strip()
    numbers = _numbers(text)
    if not numbers:
        return None, UNPARSABLE
    if cut and numbers[-1].end == len(text):
        return None, CUT_OFF
    text, candidates = _candidates(text, numbers, scale)
    own: set[Reading] = set()
    said: set[Reading] = {one.reading for one in _alone(text, candidates)}
    for one in candidates:
        before, after = text[: one.start], text[one.end :]
        denied = _labelled(before, re.escape(fold(dimension)))
        if denied is not None:
            own.add((None, AMBIGUOUS) if denied else one.reading)
            continue
        denied = _labelled(before, _LABELS)
        if denied is None and _RATES.search(before):
            denied = _is_denied(before)
        if denied is not None:
            said.add((None, AMBIGUOUS) if denied else one.reading)
        elif one.is_fraction or before.endswith(r"\boxed{") or (_UNIT_AFTER.match(after) and not _LESS.search(text)):
            said.add(one.reading)
    readings = own or said
    if len(readings) == 1:
        return next(iter(readings))
    return None, AMBIGUOUS if readings or len({one.reading for one in candidates}) > 1 else UNPARSABLE


def _candidates(text: str, numbers: list[_Number], scale: tuple[float, float]) -> tuple[str, list[_Candidate]]:
    """Return what may be the score, and the text with blanks where it speaks of the scale."""
    found: list[_Candidate] = []
    spoken_of = []
    rest = zip_longest(numbers, numbers[1:])
    for number, following in rest:
        before, after = text[: number.start], text[number.end :]
        if following is not None and _joined(_RANGE_AFTER, after, number, following):
            next(rest)
            if {number.value, following.value} == set(scale):
                spoken_of.append((number.start, following.end))
            else:
                found.append(_Candidate(number.start, following.end, (None, AMBIGUOUS)))
        elif following is not None and _joined(_FRACTION_AFTER, after, number, following):
            next(rest)
            reading: Reading = (number.value, None) if following.value == scale[1] else (None, OTHER_SCALE)
            found.append(_Candidate(number.start, following.end, reading, True))
        elif (full := _FULL_AFTER.match(after)) or (out_of := _OUT_OF_BEFORE.search(before)):
            if number.value != scale[1]:
                found.append(_Candidate(number.start, number.end, (None, OTHER_SCALE), True))
            elif full:
                spoken_of.append((number.start, number.end + full.end()))
            else:
                assert out_of is not None
                spoken_of.append((out_of.start(), number.end))
        elif _LEGEND_AFTER.match(after):
            spoken_of.append((number.start, number.end))
        else:
            reading = (number.value, None)
            if after.lstrip().startswith("%"):
                reading = (None, OTHER_SCALE)
            elif number.value is None or _HALF_AFTER.match(after) or _BOUND.search(before):
                reading = (None, AMBIGUOUS)
            found.append(_Candidate(number.start, number.end, reading))
    for start, end in spoken_of:
        text = text[:start] + " " * (end - start) + text[end:]
    return text, found


def _joined(between: re.Pattern[str], after: str, number: _Number, following: _Number) -> bool:
    """Say whether nothing else stands between two numbers."""
    match = between.match(after)
    return match is not None and number.end + match.end() == following.start


def _alone(text: str, candidates: list[_Candidate]) -> list[_Candidate]:
    """Return the candidates that have a line of their own, where the first line of the text is such a one."""
    lines = []
    for one in candidates:
        start = text.rfind("\n", 0, one.start) + 1
        end = text.find("\n", one.end)
        line = text[start : end if end >= 0 else len(text)]
        if line.strip(" \t\r.!;\"'()[]") == text[one.start : one.end].strip(" ."):
            lines.append((start, one))
    return [one for _, one in lines] if lines and lines[0][0] == 0 else []


def _labelled(before: str, labels: str) -> bool | None:
    """Say whether the label at the end of a text is denied; None where none is there, or only that of a bound."""
    found = re.search(_LABELLED.replace("LABEL", labels), before, re.ASCII)
    if found is None or re.search(_EXTREME, before[: found.start()], re.ASCII):
        return None
    return _is_denied(before)


def _is_denied(before: str) -> bool:
    """Say whether the clause at the end of a text has a negation."""
    return _DENIED.search(re.split(r"[.!?;,\n]", before)[-1]) is not None
