"""Plain text of the pages of documentation packages: HTML, man(7), Mallard (GNOME's help) and text, gzipped or not.

Nothing is taken for boilerplate: navigation, headers and licence notices stay, as they do in what crawlers bring.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from xml.etree import ElementTree


def is_page(path: str) -> bool:
    """Say by its path whether a file is a page."""
    return _converter(path) is not None


def page_text(path: str, content: bytes) -> str:
    """Return the text of a page without white space around it. Raises ValueError for a file that is none."""
    convert = _converter(path)
    if convert is None:
        raise ValueError(f"{path} is not a page")
    return convert(decode(gzip.decompress(content) if path.endswith(".gz") else content)).strip()


def decode(content: bytes) -> str:
    """Return what bytes say: as UTF-8, else in the encoding that the page declares, else in the one they look like."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        from resiliparse.parse.encoding import (  # type: ignore[import-not-found, unused-ignore]
            bytes_to_str,
            detect_encoding,
        )

        text: str = bytes_to_str(content, detect_encoding(content, from_html_meta=True) or "utf-8")
        return text


def plain_text(source: str) -> str:
    """Return the text as it stands, with Unix line ends."""
    return source.replace("\r\n", "\n").replace("\r", "\n")


def html_text(source: str) -> str:
    """Return what a reader of an HTML page sees, with list bullets and descriptions of images."""
    from resiliparse.extract.html2text import (  # type: ignore[import-not-found, unused-ignore]
        extract_plain_text,
    )

    text: str = extract_plain_text(source, main_content=False)
    return text


def mallard_text(source: str) -> str:
    """Return the titles, paragraphs and screens of a Mallard page."""
    blocks: list[str] = []
    for element in ElementTree.fromstring(source).iter():
        text = "".join(element.itertext())
        match element.tag.rpartition("}")[2]:
            case "title" | "desc" | "p":
                blocks.append(" ".join(text.split()))
            case "screen":
                blocks.append(text)
    return "\n\n".join(blocks)


_ROFF_DROPPED = re.compile(
    r"\\\n"  # continued lines
    r"|^[.'][ \t]*(?:am|de|ig)[1i]?\b[\s\S]*?^\.\.[ \t]*$"  # macro definitions, ignored blocks
    r'|(?<!\\)\\["#].*'  # comments
    r"|(?<=^\.TS)[\s\S]*?\.[ \t]*$|^T\}|T\{[ \t]*$",  # table formats and cell brackets
    re.MULTILINE,
)
_ROFF_CONDITIONAL = re.compile(r"[.'][ \t]*(?:if|ie|el|while)\b")
_ROFF_ARGUMENT = re.compile(r'"((?:[^"]|"")*)"?|((?:\\.|\S)+)')
_ROFF_ESCAPE = re.compile(
    r"\\(?:"
    r"[fFmMgknVY*]?(?:\(..|\[[^]]*\])"  # \(bu \[bu] \*(Aq \f(CW \f[CW]
    r"|[fFmMgknVY*]."  # \fB \*R
    r"|s(?:[-+]?\d{1,2}|[-+]?\(..|[-+]?\[[^]]*\])"  # \s+1
    r"|[bDhHlLNoRSvwxXZ]'[^']*'"  # \h'-04'
    r"|.)"  # \- \& \e
)
# What an escape prints; the others print nothing. Strings (*) are those that Pod::Man defines.
_ROFF_SYMBOLS = {
    "-": "-", " ": " ", "~": " ", "0": " ", "e": "\\", "\\": "\\", "t": "\t", "'": "'", "`": "`",
    "(aq": "'", "(dq": '"', "(lq": "“", "(rq": "”", "(oq": "‘", "(cq": "’", "(ga": "`", "(ha": "^",
    "(ti": "~", "(rs": "\\", "(bv": "|", "(br": "|", "(ul": "_", "(at": "@", "(sl": "/", "(hy": "-",
    "(en": "–", "(em": "—", "(bu": "•", "(co": "©", "(de": "°", "(+-": "±", "(mu": "×", "(->": "→",
    "*(Aq": "'", '*(L"': '"', '*(R"': '"', "*(C`": '"', "*(C'": '"', "*(lq": "“", "*(rq": "”",
    "*(--": "--", "*(C+": "C++", "*(PI": "pi", "*R": "®",
}  # fmt: skip


def unescape_roff(text: str) -> str:
    """Return a text with roff's escape sequences replaced by what they print."""
    return _ROFF_ESCAPE.sub(lambda match: _ROFF_SYMBOLS.get(match[0][1:].replace("[", "(").rstrip("]"), ""), text)


def man_text(source: str) -> str:
    """Return the prose of a man(7) page: paragraphs filled, layout and conditional lines dropped.

    The few mdoc(7) pages, whose macros carry the words, come out empty.
    """
    if re.search(r"^\.Dd\b", source, re.MULTILINE):
        return ""
    out: list[str] = []
    line_end = " "  # a line break where text is not filled
    depth = 0  # of nested conditional blocks
    link = ""
    for line in _ROFF_DROPPED.sub("", source).split("\n"):
        skipped = depth > 0 or _ROFF_CONDITIONAL.match(line)
        depth = max(0, depth + line.count(r"\{") - line.count(r"\}"))
        if skipped:
            continue
        if not line.startswith((".", "'")):
            out.append(unescape_roff(line) + line_end if line.strip() else "\n\n")
            continue
        request, _, rest = line[1:].strip().partition(" ")
        arguments = [unescape_roff(quoted.replace('""', '"') or bare) for quoted, bare in _ROFF_ARGUMENT.findall(rest)]
        match request:
            case "TH" | "SH" | "SS":
                out += ["\n\n", " ".join(arguments), "\n\n"]
            case "B" | "I" | "SM" | "SB" | "OP":
                out += [" ".join(arguments), line_end]
            case "BI" | "BR" | "IB" | "IR" | "RB" | "RI":
                out += ["".join(arguments), line_end]
            case "IP":
                out += ["\n\n", *arguments[:1], line_end]
            case "P" | "PP" | "LP" | "HP" | "TP" | "TQ" | "RS" | "RE" | "sp" | "Sp":
                out.append("\n\n")
            case "br":
                out.append("\n")
            case "nf" | "EX" | "Vb" | "TS":
                out.append("\n")
                line_end = "\n"
            case "fi" | "EE" | "Ve" | "TE":
                out.append("\n")
                line_end = " "
            case "UR" | "MT":
                link = "".join(arguments[:1])
            case "UE" | "ME":
                out += [f"<{link}>", *arguments[:1], line_end]
    return re.sub(r"\n{3,}", "\n\n", re.sub(r" *\n", "\n", "".join(out)))


_CONVERTERS: tuple[tuple[re.Pattern[str], Callable[[str], str]], ...] = (
    (re.compile(r"usr/share/man/.+"), man_text),
    (re.compile(r".+\.x?html?"), html_text),
    (re.compile(r".+\.page"), mallard_text),
    (re.compile(r".+\.(?:md|pod|rst|txt)"), plain_text),
    (re.compile(r".+/(?:changelog|copyright|news|readme)(?:\.debian)?"), plain_text),
)


def _converter(path: str) -> Callable[[str], str] | None:
    name = path.lower().removesuffix(".gz")
    return next((convert for pattern, convert in _CONVERTERS if pattern.fullmatch(name)), None)
