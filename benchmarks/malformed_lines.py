"""Reading JSON Lines of which many are malformed, in more than 25 ways, against reading the same good lines alone.

The reader runs in one process on one core, clean and malformed input in turns; what counts is the time that the process
itself had. Every good line has to come out, and every malformed one has to be a dead letter with the expected error.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from corpus.inputs import InputConfig
from corpus.planning import plan_input
from corpus.readers import read_item

TARGET = 0.5
Maker = Callable[[random.Random, str], bytes]

_WORDS = "water bridge stone market valley winter people grain road carts mill town river éclair Straße 水 다리".split()


def _record(text: str, **more: Any) -> bytes:
    return json.dumps({"id": more.pop("id", "x"), "text": text, **more}, ensure_ascii=False).encode()


def _with(text: str, value: bytes) -> bytes:
    """Return a record with one more key, whose value is these bytes."""
    return _record(text)[:-1] + b', "more": ' + value + b"}"


def _inserted(choose: random.Random, text: str, piece: bytes) -> bytes:
    """Put bytes between two words of the text of a record."""
    before, after = _record(text).rsplit(b" ", 1)
    return before + piece + after


# name: (error, function of a generator and a text that gives the line).
KINDS: dict[str, tuple[str, Maker]] = {
    "cut object": ("malformed_json", lambda choose, text: _record(text)[:-1]),
    "cut text": ("malformed_json", lambda choose, text: _record(f"{text}.")[:-3]),
    "bytes after the object": ("malformed_json", lambda choose, text: _record(text) + b" }"),
    "two objects": ("malformed_json", lambda choose, text: _record(text) + _record(text)),
    "two objects with a carriage return": ("malformed_json", lambda choose, text: _record(text) + b"\r" + _record("b")),
    "single quotes": ("malformed_json", lambda choose, text: _record(text).replace(b'"', b"'")),
    "Python constants": ("malformed_json", lambda choose, text: _with(text, b"True")),
    "key without quotes": ("malformed_json", lambda choose, text: _record(text).replace(b'"text"', b"text")),
    "no colon": ("malformed_json", lambda choose, text: _record(text).replace(b'"text":', b'"text"')),
    "no comma": ("malformed_json", lambda choose, text: _record(text).replace(b'", "', b'" "')),
    "comma at the end": ("malformed_json", lambda choose, text: _record(text)[:-1] + b",}"),
    "comment": ("malformed_json", lambda choose, text: b"// " + _record(text)),
    "NaN": ("malformed_json", lambda choose, text: _with(text, b"NaN")),
    "infinity": ("malformed_json", lambda choose, text: _with(text, b"-Infinity")),
    "number beyond double": ("malformed_json", lambda choose, text: _with(text, b"1e999")),
    "number with zeros before": ("malformed_json", lambda choose, text: _with(text, b"007")),
    "number of 5,000 digits": ("malformed_json", lambda choose, text: _with(text, b"7" * 5000)),
    "raw tab": ("malformed_json", lambda choose, text: _inserted(choose, text, b"\t")),
    "raw NUL": ("malformed_json", lambda choose, text: _inserted(choose, text, b"\0")),
    "unknown escape": ("malformed_json", lambda choose, text: _inserted(choose, text, rb"\x41")),
    "cut escape": ("malformed_json", lambda choose, text: _inserted(choose, text, rb"\u12 ")),
    "high surrogate alone": ("invalid_unicode", lambda choose, text: _inserted(choose, text, rb"\ud83d")),
    "low surrogate alone": ("invalid_unicode", lambda choose, text: _inserted(choose, text, rb"\ude00")),
    "Latin-1": ("invalid_utf8", lambda choose, text: _inserted(choose, text, b"\xe9 ")),
    "overlong UTF-8": ("invalid_utf8", lambda choose, text: _inserted(choose, text, b"\xc0\x80")),
    "surrogate in UTF-8": ("invalid_utf8", lambda choose, text: _inserted(choose, text, b"\xed\xa0\xbd")),
    "random bytes": ("invalid_utf8", lambda choose, text: b"\xff" + choose.randbytes(200).replace(b"\n", b"")),
    "UTF-16": ("malformed_json", lambda choose, text: _record("plain " * 20).decode().encode("utf-16-le")),
    "byte order mark inside the file": ("malformed_json", lambda choose, text: b"\xef\xbb\xbf" + _record(text)),
    "no-break space before": ("malformed_json", lambda choose, text: b"\xc2\xa0" + _record(text)),
    "HTML": ("malformed_json", lambda choose, text: f"<p>{text}</p>".encode()),
    "CSV": ("malformed_json", lambda choose, text: f'17,"{text}",web'.encode()),
    "zero bytes": ("malformed_json", lambda choose, text: b"\0" * choose.randrange(1, 300)),
    "too deep": ("malformed_json", lambda choose, text: _with(text, b"[" * 1500 + b"]" * 1500)),
    "deep and open": ("malformed_json", lambda choose, text: b'{"a":' * 600),
    "list": ("not_an_object", lambda choose, text: b"[" + _record(text) + b"]"),
    "string": ("not_an_object", lambda choose, text: json.dumps(text).encode()),
    "number": ("not_an_object", lambda choose, text: str(choose.random()).encode()),
    "null": ("not_an_object", lambda choose, text: b"null"),
    "text null": ("null_text", lambda choose, text: b'{"id": "x", "text": null}'),
    "no text": ("missing_text", lambda choose, text: json.dumps({"id": "x", "Text": text}).encode()),
    "text a number": ("wrong_type", lambda choose, text: b'{"id": "x", "text": 17}'),
    "text a list": ("wrong_type", lambda choose, text: json.dumps({"id": "x", "text": text.split()}).encode()),
    "text an object": ("wrong_type", lambda choose, text: json.dumps({"id": "x", "text": {"text": text}}).encode()),
    "text true": ("wrong_type", lambda choose, text: b'{"id": "x", "text": true}'),
    "id too long": ("id_too_long", lambda choose, text: _record(text, id="x" * 5000)),
}  # fmt: skip


def lines(count: int, share: float, seed: int = 0) -> Iterator[tuple[str | None, bytes]]:
    """Yield (kind or None, line without its end): so many lines, a share of them malformed, all kinds in turn."""
    choose = random.Random(seed)
    kinds = list(KINDS)
    bad = 0
    for number in range(count):
        text = " ".join(choose.choices(_WORDS, k=choose.randrange(10, 90)))
        if choose.random() < share:
            kind = kinds[bad % len(kinds)]
            bad += 1
            yield kind, KINDS[kind][1](choose, text)
        else:
            yield None, _record(text, id=f"good-{number}", score=number / 7)


def write_lines(path: Path, count: int, share: float, seed: int = 0) -> tuple[list[str], dict[int, str]]:
    """Write such lines, some ends with CR and blank lines between; returns ids of good ones and kinds by offset."""
    choose = random.Random(seed + 1)
    good: list[str] = []
    bad: dict[int, str] = {}
    with path.open("wb") as file:
        for kind, line in lines(count, share, seed):
            if kind is None:
                good.append(json.loads(line)["id"])
            else:
                bad[file.tell()] = kind
            file.write(line + choose.choice([b"\n", b"\n", b"\r\n", b"\n\n", b"\n \r\n"]))
    return good, bad


def read(path: Path) -> tuple[float, int, Counter[str]]:
    """Read a file as a run does; returns seconds of this process, records, and dead letters by error."""
    config = InputConfig(files=[str(path)], id_column="id")
    plan = plan_input(config)
    started = time.process_time()
    records, dead = 0, Counter[str]()
    for item in plan.items:
        for batch in read_item(item, config, 8192, 16 << 20):
            records += batch.records.num_rows
            dead.update(batch.dead.column("error").to_pylist())
    return time.process_time() - started, records, dead


def main() -> int:
    """Measure, print, and return 3 where a line is lost or the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=2_000_000, help="half of them malformed")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="malformed-") as folder:
        mixed, clean = Path(folder) / "mixed.jsonl", Path(folder) / "clean.jsonl"
        good, bad = write_lines(mixed, arguments.lines, 0.5)
        write_lines(clean, arguments.lines // 2, 0)
        expected = Counter(KINDS[kind][0] for kind in bad.values())
        speeds: dict[str, list[float]] = {"clean": [], "mixed": []}
        lines_per_second: dict[str, list[float]] = {"clean": [], "mixed": []}
        whole = True
        for _ in range(arguments.repetitions):
            for name, path in (("clean", clean), ("mixed", mixed)):
                seconds, records, dead = read(path)
                speeds[name].append(path.stat().st_size / 1e6 / seconds)
                lines_per_second[name].append((records + dead.total()) / seconds)
                if name == "mixed":
                    whole &= records == len(good) and dead == expected
    ratios = {
        "megabytes_per_second": statistics.median(speeds["mixed"]) / statistics.median(speeds["clean"]),
        "lines_per_second": statistics.median(lines_per_second["mixed"]) / statistics.median(lines_per_second["clean"]),
    }
    for name in speeds:
        speed, per_second = statistics.median(speeds[name]), statistics.median(lines_per_second[name])
        print(f"{name}: {speed:.1f} MB/s, {per_second:,.0f} lines/s")
    print(
        f"{len(bad):,} malformed lines of {len(set(bad.values()))} kinds among {len(good):,} good ones: "
        f"{'every line is accounted for' if whole else 'LINES ARE LOST'}; "
        + ", ".join(f"{ratio:.2f} of the clean {name.replace('_', ' ')}" for name, ratio in ratios.items())
    )
    if arguments.json:
        result = {"malformed": len(bad), "good": len(good), "whole": whole, "ratios": ratios, "speeds": speeds}
        arguments.json.write_text(json.dumps(result, indent=2), encoding="utf-8")
    return 0 if whole and ratios["lines_per_second"] >= TARGET else 3


if __name__ == "__main__":
    sys.exit(main())
