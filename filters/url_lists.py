"""Hosts, words and normal form of URLs, and lists to look them up in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple
from urllib.parse import unquote

from corpus.case_folding import fold
from corpus.errors import UsageError
from corpus.list_files import read_list
from corpus.unicode_tables import FORMAT, PUNCTUATION, SEPARATOR, regular_expression_class

LONGEST_HOST = 253  # characters that a name in the domain name system may have (RFC 1035)
BLANKS = " \t\r\n"
DEFAULT_PORTS = {"http": "80", "https": "443"}

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:)?[/\\]{2,}")
_PORT = re.compile(r":([0-9]*)$")


class UrlParts(NamedTuple):
    """Host in ASCII and lower case, and host with port, path and query: what two spellings of a URL share."""

    host: str
    normal: str


def url_parts(url: str) -> UrlParts:
    """Return the parts of a URL; a text without ``//`` begins with the host. No text is an error."""
    url = url.strip(BLANKS)
    scheme = _SCHEME.match(url)
    rest = url[scheme.end() :] if scheme else url
    authority = re.split(r"[/\\?#]", rest, maxsplit=1)[0]
    tail = rest[len(authority) :].partition("#")[0]
    authority = authority.rpartition("@")[2]
    port = _PORT.search(authority)
    host = ascii_host(authority[: port.start()] if port else authority)
    number = port[1] if port else ""
    if scheme and number == DEFAULT_PORTS.get((scheme[1] or "").rstrip(":").lower()):
        number = ""
    return UrlParts(host, host + (f":{number}" if number else "") + ("" if tail == "/" else tail))


def ascii_host(host: str) -> str:
    """Return a host in the form that registries use; one that has no such form stays, with A to Z in lower case."""
    host = host.strip("[].")
    if not host.isascii() and len(host) <= LONGEST_HOST:
        try:
            return host.encode("idna").decode("ascii").lower()
        except UnicodeError:
            return fold(host)
    return fold(host)


@cache
def _word_pattern() -> re.Pattern[str]:
    return re.compile(f"[^{regular_expression_class(PUNCTUATION | SEPARATOR | FORMAT)}]+")


def url_words(url: str) -> list[str]:
    """Return the words of a URL in their order: folded runs between punctuation, after percent-decoding."""
    return _word_pattern().findall(fold(unquote(url)))


@dataclass(frozen=True)
class UrlLists:
    """The lists of a stage; a list that is not given is empty."""

    domains: frozenset[str]
    hosts: frozenset[str]
    urls: frozenset[str]
    words: frozenset[str]

    def find(self, url: str) -> tuple[str, str | None, int, int, int, int]:
        """Return host, first entry found, and the counts of listed domains, hosts, URLs (0 or 1) and words."""
        host, normal = url_parts(url)
        domain = self._domain(host)
        words = [word for word in dict.fromkeys(url_words(url)) if word in self.words] if self.words else []
        entries = [
            *([] if domain is None else [domain]),
            *([host] if host in self.hosts else []),
            *([normal] if normal in self.urls else []),
            *words,
        ]
        return (
            host,
            entries[0] if entries else None,
            int(domain is not None),
            int(host in self.hosts),
            int(normal in self.urls),
            len(words),
        )

    def _domain(self, host: str) -> str | None:
        """Return the listed domain that a host is or lies below."""
        name = host[-LONGEST_HOST:] if self.domains else ""
        while name:
            if name in self.domains:
                return name
            name = name.partition(".")[2]
        return None


def read_url_lists(files: Mapping[str, str], stage: str) -> UrlLists:
    """Read the lists that are given. Raises UsageError for a file that cannot be used, or an entry that cannot match.

    Args:
        files: path by list: domains, hosts, urls, words.
        stage: name of the stage, for messages.
    """
    read: dict[str, frozenset[str]] = {}
    for name in ("domains", "hosts", "urls", "words"):
        entries = set()
        for line, entry in read_list(files[name], f"{stage}.{name}") if name in files else ():
            if name == "words":
                found = url_words(entry)
                key = found[0] if len(found) == 1 else ""
            elif name == "urls":
                key = url_parts(entry).normal
            else:
                key = ascii_host(entry.removeprefix("*"))
                key = key if not re.search(r"[\s/:?#@]", key) or re.fullmatch("[0-9a-f:]+", key) else ""
            if not key:
                wanted = {"words": "one word of letters and digits", "urls": "a URL"}.get(name, "a host without scheme")
                raise UsageError(f"{stage}.{name}: {files[name]}, line {line}: found {entry!r}; wanted {wanted}")
            entries.add(key)
        read[name] = frozenset(entries)
    return UrlLists(**read)
