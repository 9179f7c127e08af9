"""E-mail and IP addresses in plain Python, on normal text: a part of ``filters.pii_reference``."""

from __future__ import annotations

import re
from functools import cache
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network

from corpus.unicode_tables import LETTER, MARK, regular_expression_class
from filters import pii_tables as tables

EMAIL, IP_ADDRESS = 0, 1
WORD = "A-Za-z0-9_"
LOCAL = "A-Za-z0-9._%+\u00c0-\u052f-"
FIRST_SIGN = re.compile(r"[A-Za-z0-9\u00c0-\u052f]")
SKIPPED = re.compile(r"[ \"'#.:=]{0,5}\Z")
HEX_RUN = re.compile("[0-9A-Fa-f:.]*")
FOUR_OCTETS = re.compile(r"(0|[1-9][0-9]{0,2})\.(0|[1-9][0-9]{0,2})\.(0|[1-9][0-9]{0,2})\.(0|[1-9][0-9]{0,2})(?![0-9])")

Span = tuple[int, int, int]


def email(text: str, at: int) -> Span | None:
    """Return the e-mail address around an @.

    The local part is what stands before it of Latin, Greek and Cyrillic letters, digits and ``. _ % + -``, behind the
    last two dots in a row, without signs at its beginning; at most 64 characters (RFC 5321). No address: behind another
    @; the user of a URL; before an opening parenthesis or @, which make a program of it; before a colon and a path.
    """
    window = text[max(0, at - 65) : at]
    local = re.search(rf"[{LOCAL}]*\Z", window)
    assert local is not None
    name = local[0].rpartition("..")[2]
    first = at - len(name)
    behind_dots = local[0] != name
    if len(name) + behind_dots > 64 or not name or name.endswith("."):
        return None
    if not behind_dots:
        if text[:first].endswith("@"):
            return None
        host = first
        if text[:first].endswith(":"):
            user = re.search(rf"[{LOCAL}]{{0,63}}\Z", text[max(0, first - 65) : first - 1])
            host = first - 1 - len(user[0]) if user else first
        if text[:host].endswith("//"):
            return None
    sign = FIRST_SIGN.search(name)
    if sign is None:
        return None
    end = domain_end(text[at + 1 : at + 1 + 700])
    if end is None:
        return None
    end += at + 1
    if text[end : end + 1] in ("(", "@"):
        return None
    return None if re.match("[:][A-Za-z/~]", text[end : end + 2]) else (first + sign.start(), end, EMAIL)


@cache
def _label() -> re.Pattern[str]:
    return re.compile(f"[A-Za-z0-9{regular_expression_class(LETTER)}{regular_expression_class(MARK)}-]+")


def domain_end(text: str) -> int | None:
    """Return where the domain ends with which a text begins.

    Labels of letters, digits and hyphens are joined by dots; at most 255 characters without the dots. The address ends
    behind the last label but the first that begins with two letters of ASCII (the rest of it, such as a Korean particle
    or a hyphen, is left out), or is an encoded label, or has two or more letters of another script. Such a label ends
    it, too, where an ASCII name has ended before. Two numbers at its beginning are a version, ``2x`` is an image.
    """
    end, position, labels, left = None, 0, 0, 255
    numeric = True
    while True:
        match = _label().match(text, position)
        label = match[0][:left] if match else ""
        foreign = label[:1].isascii() and re.search("[^\0-\u052f]", label)
        if foreign:
            label = label[: foreign.start()]
        if not label or label[0] == "-" or (not label[0].isascii() and end is not None):
            return end
        if labels == 0 and re.fullmatch("[0-9]x", label):
            return None
        numeric = numeric and re.fullmatch("[0-9]+", label) is not None
        if numeric and labels == 1:
            return None
        if labels:
            letters = re.match("[A-Za-z]*", label)
            length = letters.end() if letters else 0
            if not label[0].isascii():
                end = position + len(label) if len(label) > 1 else end
            elif re.match("(?i:xn)--.", label):
                end = position + len(label)
            elif length > 1 and not re.match("[0-9]", text[position + length : position + length + 1]):
                end = position + length
        position += len(label)
        left -= len(label)
        labels += 1
        if foreign or text[position : position + 1] != ".":
            return end
        position += 1


def word_before(text: str, position: int, words: str) -> int | None:
    """Return where the longest listed word begins that ends at a position.

    Latin, Greek and Cyrillic words must not be the end of a longer word. Capitals of ASCII do not count.
    """
    head = re.sub("[A-Z]+", lambda match: match[0].lower(), text[max(0, position - 40) : position])
    found = [
        word
        for word in tables.word_list(words)
        if head.endswith(word)
        and (word.encode()[0] >= 0xD7 or not re.search("[A-Za-z\u00c0-\u2e7f]\\Z", head[: -len(word)]))
    ]
    return position - max(map(len, found)) if found else None


def before_skipped(text: str, position: int) -> int:
    """Return the position before up to five spaces, quotes and signs."""
    match = SKIPPED.search(text[max(0, position - 5) : position])
    return position - len(match[0]) if match else position


def four_octets(text: str, position: int) -> tuple[str, int] | None:
    """Return the IPv4 address at a position and where it ends: octets up to 255 without leading zeros."""
    match = FOUR_OCTETS.match(text, position)
    if match is None or any(int(octet) > 255 for octet in match.groups()):
        return None
    return match[0], match.end()


def is_public_4(address: IPv4Address) -> bool:
    """Say whether an address belongs to somebody: it is in none of the special networks."""
    return not any(address in IPv4Network(network) for network in tables.LOCAL_NETWORKS_4.split(" "))


def address_4(text: str, position: int, public_only: bool) -> tuple[Span | None, int] | None:
    """Return the IPv4 address at a position and where it ends; None as the span where it is to stay.

    Nothing may be joined to it that makes a version, a section or an amount of it, nor may a word such as "version"
    stand before it.
    """
    match = four_octets(text, position)
    if match is None:
        return None
    address, end = match
    head, tail = text[max(0, position - 2) : position], text[end : end + 2]
    if re.search(rf"[{WORD}.~^$#]\Z|(?<![0-9])-\Z|[0-9],\Z|[{WORD}]/\Z|[!<=>~]=\Z", head):
        return None
    if re.match(rf"[{WORD}+%]|\.[{WORD}]|-[A-Za-z]", tail):
        return None
    place = before_skipped(text, position)
    version = text[:place].endswith("\u00a7") or word_before(text, place, tables.VERSION_WORDS) is not None
    version = version or address.startswith(tuple(tables.IDENTIFIER_ARCS.split(" ")))
    local = public_only and not is_public_4(IPv4Address(address))
    return (None if local or version else (position, end, IP_ADDRESS)), end


def address_6(text: str, colon: int, public_only: bool) -> tuple[Span | None, int]:
    """Return the IPv6 address whose first colon stands at a position, and where its run of digits and signs ends.

    A label joined by a colon, and a full stop or colon at the end, do not belong to it.
    """
    run = HEX_RUN.match(text, colon)
    end = run_end = run.end() if run else colon
    hexadecimal = re.search(r"[0-9A-Fa-f]{0,5}\Z", text[max(0, colon - 5) : colon])
    left = len(hexadecimal[0]) if hexadecimal else 0
    start = colon - left
    doubled = text[colon + 1 : colon + 2] == ":"
    if run_end - colon > 48:
        return None, run_end
    if left == 5 or re.match(f"[{WORD}]", text[start - 1 : start]) or (left == 0 and not doubled):
        if doubled:
            return None, run_end
        start = colon + 1
    elif text[:start].endswith("."):
        return None, run_end
    while text[start:end].endswith("."):
        end -= 1
    if text[start:end].endswith(":") and not text[start:end].endswith("::"):
        end -= 1
    if end == run_end and re.match(f"[{WORD}]", text[end : end + 1]):
        return None, run_end
    try:
        address = IPv6Address(text[start:end])
    except AddressValueError:
        return None, run_end
    return ((start, end, IP_ADDRESS) if counts_6(address, public_only) else None), run_end


def counts_6(address: IPv6Address, public_only: bool) -> bool:
    """Say whether an IPv6 address is looked for: a public one, or any if it is in a network that is in use."""

    def within(networks: str) -> bool:
        return any(address in IPv6Network(network) for network in networks.split(" "))

    if within("::ffff:0:0/96 64:ff9b::/96"):
        return not public_only or is_public_4(IPv4Address(int(address) & 0xFFFFFFFF))
    if within(tables.PUBLIC_NETWORKS_6) and not within(tables.LOCAL_NETWORKS_6):
        return True
    return not public_only and within(f"{tables.LOCAL_NETWORKS_6} {tables.OTHER_NETWORKS_6}")
