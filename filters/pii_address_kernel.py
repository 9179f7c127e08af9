"""E-mail and IP addresses in texts, compiled; the rules stand in ``filters.pii_reference``.

All helpers take pointers (see ``corpus.text_kernel``), read a bounded number of characters, and give the byte positions
of what they found, NONE for nothing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from corpus.jit import inlined
from corpus.text import Bytes, Offsets
from corpus.unicode_tables import LETTER, MARK, Classes
from filters.pii_text_kernel import NONE, after, before, ends_with_word, is_digit, is_letter, is_word, skip_back

Numbers = npt.NDArray[np.int64]

LOCAL_PART, DOMAIN, HEX_RUN = 64, 255, 48
"""Most characters of a local part and a domain (RFC 5321, section 4.5.3.1), and of hexadecimal groups with colons."""
ENCODED_PREFIX = 0x786E2D2D
"""``xn--`` as four bytes: an internationalised label in ASCII."""
ATTRIBUTE_TYPES, CERTIFICATE_EXTENSIONS = 0x020504, 0x02051D
"""2.5.4 and 2.5.29, see ``filters.pii_tables.IDENTIFIER_ARCS``."""
MAPPED, TRANSLATED = 0xFFFF, 0x0064FF9B00000000
"""Where IPv6 addresses carry one of IPv4: ::ffff:0:0/96 and 64:ff9b::/96 (RFC 4291, RFC 6052)."""


@inlined
def _is_local(code: int) -> bool:
    """Say whether a character can be in a local part: Latin, Greek and Cyrillic letters, digits, ``. _ % + -``."""
    return is_word(code) or code in (0x2E, 0x25, 0x2B, 0x2D) or 0xC0 <= code < 0x530


@inlined
def _local_start(text: Bytes, begin: int, at: int) -> int:
    """Return where the local part before an @ begins; NONE where none does."""
    start, behind, count = at, NONE, 0
    outside, size = before(text, begin, start)
    while _is_local(outside) and not (outside == 0x2E and behind == 0x2E):
        count += 1
        if count > LOCAL_PART:
            return NONE
        start -= size
        behind = outside
        outside, size = before(text, begin, start)
    if outside == 0x40:
        return NONE
    # The user of a URL, https://user:password@host, is no mailbox.
    place = start
    if outside == 0x3A:
        place -= size
        for _ in range(LOCAL_PART):
            outside, size = before(text, begin, place)
            if not _is_local(outside):
                break
            place -= size
    if outside == 0x2F and before(text, begin, place - size)[0] == 0x2F:
        return NONE
    while start < at:
        code, size = after(text, start, at)
        if is_letter(code) or is_digit(code) or code >= 0xC0:
            break
        start += size
    return start if start < at and behind != NONE and before(text, begin, at)[0] != 0x2E else NONE


@inlined
def _domain_stop(text: Bytes, position: int, end: int, classes: Classes) -> int:
    """Return where the domain that begins at a byte position stops; NONE where none begins."""
    stop, labels, numeric, count = NONE, 0, 0, 0
    while True:
        label_characters, letters, letters_stop = 0, 0, position
        first, last, prefix = NONE, NONE, 0
        digits_only, foreign = True, False
        while count < DOMAIN:
            code, size = after(text, position, end)
            if code < 0x80:
                if not (is_letter(code) or is_digit(code) or code == 0x2D):
                    break
            elif not classes[code] & (LETTER | MARK):
                break
            elif 0 <= first < 0x80 and code >= 0x530:
                foreign = True
                break
            if first == NONE:
                first = code
            if label_characters < 4:
                prefix = prefix << 8 | (code | 0x20 if code < 0x80 else 0)
            if letters == label_characters and is_letter(code):
                letters += 1
                letters_stop = position + size
            digits_only = digits_only and is_digit(code)
            last = code
            position += size
            label_characters += 1
            count += 1
        if label_characters == 0 or first == 0x2D or (first >= 0x80 and stop != NONE):
            break
        if labels == 0 and is_digit(first) and label_characters == 2 and last == 0x78:
            return NONE  # icon@2x.png
        if digits_only and labels == numeric:
            numeric += 1
            if numeric == 2:
                return NONE  # package@4.17.21-beta.rc
        if labels > 0:
            if first >= 0x80:
                stop = position if label_characters > 1 else stop
            elif prefix == ENCODED_PREFIX and label_characters > 4:
                stop = position
            elif letters > 1:
                code, _ = after(text, letters_stop, end)
                stop = stop if is_digit(code) else letters_stop
        labels += 1
        code, size = after(text, position, end)
        if foreign or code != 0x2E:
            break
        position += size
    return stop


@inlined
def find_email(text: Bytes, begin: int, end: int, at: int, size: int, classes: Classes) -> tuple[int, int]:
    """Return start and stop of the e-mail address around an @ of ``size`` bytes; (NONE, NONE) if there is none."""
    start = _local_start(text, begin, at)
    if start == NONE:
        return NONE, NONE
    stop = _domain_stop(text, at + size, end, classes)
    if stop == NONE:
        return NONE, NONE
    code, size = after(text, stop, end)
    if code in (0x28, 0x40):
        return NONE, NONE
    if code == 0x3A:
        code, _ = after(text, stop + size, end)
        if is_letter(code) or code in (0x2F, 0x7E):
            return NONE, NONE  # git@host:path
    return start, stop


@inlined
def _octets(text: Bytes, position: int, end: int) -> tuple[int, int]:
    """Return the number that four dotted octets at a byte position make, and where they stop; (0, NONE) if none."""
    value = 0
    for octet in range(4):
        code, size = after(text, position, end)
        if octet > 0:
            if code != 0x2E:
                return 0, NONE
            position += size
            code, size = after(text, position, end)
        number, digits = 0, 0
        while is_digit(code):
            if digits == 3 or (digits > 0 and number == 0):
                return 0, NONE
            number = number * 10 + code - 48
            digits += 1
            position += size
            code, size = after(text, position, end)
        if digits == 0 or number > 255:
            return 0, NONE
        value = value << 8 | number
    return value, position


@inlined
def _is_local_4(value: int, networks: Numbers, count: int) -> bool:
    """Say whether an IPv4 address is in one of ``count`` networks."""
    found = False
    for network in range(count):
        found = found or value & networks[count + network] == networks[network]
    return found


@inlined
def find_address_4(
    text: Bytes,
    begin: int,
    end: int,
    position: int,
    networks: Numbers,
    network_count: int,
    word_offsets: Offsets,
    words: Bytes,
    word_count: int,
    public_only: bool,
) -> tuple[bool, int]:
    """Return whether an IPv4 address begins at a byte position, and where it stops.

    Where it stops is also given for four octets that are to stay: local ones, versions. NONE where there are none.
    """
    value, stop = _octets(text, position, end)
    if stop == NONE:
        return False, NONE
    code, size = before(text, begin, position)
    outer, _ = before(text, begin, position - size)
    if is_word(code) or code in (0x2E, 0x7E, 0x5E, 0x24, 0x23):
        return False, NONE
    if (
        (code == 0x2D and not is_digit(outer))
        or (code == 0x2C and is_digit(outer))
        or (code == 0x2F and is_word(outer))
        or (code == 0x3D and outer in (0x21, 0x3C, 0x3D, 0x3E, 0x7E))
    ):
        return False, NONE
    code, size = after(text, stop, end)
    outer, _ = after(text, stop + size, end)
    if is_word(code) or code in (0x2B, 0x25):
        return False, NONE
    if (code == 0x2E and is_word(outer)) or (code == 0x2D and is_letter(outer)):
        return False, NONE
    if public_only and _is_local_4(value, networks, network_count):
        return False, stop
    place = skip_back(text, begin, position)
    if before(text, begin, place)[0] == 0xA7 or value >> 8 in (ATTRIBUTE_TYPES, CERTIFICATE_EXTENSIONS):
        return False, stop
    return ends_with_word(text, begin, place, word_offsets, words, word_count) == NONE, stop


@inlined
def _is_hex(code: int) -> bool:
    return is_digit(code) or 97 <= (code | 32) <= 102


@inlined
def _parse_6(text: Bytes, position: int, stop: int, groups: Numbers) -> bool:
    """Write the eight groups of an IPv6 address between two byte positions; say whether it is one.

    Args:
        groups: scratch of 8.
    """
    count, gap = 0, NONE
    code, size = after(text, position, stop)
    if code == 0x3A:
        position += size
        code, size = after(text, position, stop)
        if code != 0x3A:
            return False
        position += size
        gap = 0
    while position < stop:
        start, value, digits = position, 0, 0
        code, size = after(text, position, stop)
        while _is_hex(code):
            value = value << 4 | (code - 48 if code < 58 else (code | 32) - 87)
            digits += 1
            if digits > 4:
                return False
            position += size
            code, size = after(text, position, stop)
        if digits == 0 or count == 8:
            return False
        if code == 0x2E:
            value, position = _octets(text, start, stop)
            if position != stop or count > 6:
                return False
            groups[count], groups[count + 1] = value >> 16, value & 0xFFFF
            count += 2
            break
        groups[count] = value
        count += 1
        if position == stop:
            break
        if code != 0x3A:
            return False
        position += size
        code, size = after(text, position, stop)
        if code == 0x3A:
            if gap != NONE:
                return False
            gap = count
            position += size
        elif position >= stop:
            return False
    if gap == NONE:
        return count == 8
    if count == 8:
        return False
    moved = count - gap
    for group in range(moved):
        groups[7 - group] = groups[count - 1 - group]
    for group in range(gap, 8 - moved):
        groups[group] = 0
    return True


@inlined
def _counts_6(
    groups: Numbers, networks_4: Numbers, count_4: int, networks_6: Numbers, count_6: int, public_only: bool
) -> bool:
    """Say whether eight groups are an address that is looked for."""
    upper = groups[0] << 48 | groups[1] << 32 | groups[2] << 16 | groups[3]
    lower = groups[4] << 48 | groups[5] << 32 | groups[6] << 16 | groups[7]
    if (upper == 0 and lower >> 32 == MAPPED) or (upper == TRANSLATED and lower >> 32 == 0):
        return not public_only or not _is_local_4(lower & 0xFFFFFFFF, networks_4, count_4)
    if upper == 0:
        return lower == 1 and not public_only
    for network in range(count_6):
        if upper & networks_6[count_6 + network] == networks_6[network]:
            return networks_6[2 * count_6 + network] == 1 or not public_only
    return False


@inlined
def find_address_6(
    text: Bytes,
    begin: int,
    end: int,
    colon: int,
    size: int,
    networks_4: Numbers,
    count_4: int,
    networks_6: Numbers,
    count_6: int,
    public_only: bool,
    groups: Numbers,
) -> tuple[int, int, int]:
    """Return start and stop of the IPv6 address whose first colon stands at a byte position, NONE if there is none.

    The third number is where the run of hexadecimal digits, colons and dots ends.
    """
    start, left = colon, 0
    outside, width = before(text, begin, start)
    while _is_hex(outside) and left < 5:
        start -= width
        left += 1
        outside, width = before(text, begin, start)
    stop, characters = colon, 0
    code, width = after(text, stop, end)
    while _is_hex(code) or code in (0x3A, 0x2E):
        stop += width
        characters += 1
        code, width = after(text, stop, end)
    run_stop = stop
    if characters > HEX_RUN:
        return NONE, NONE, run_stop
    doubled = after(text, colon + size, end)[0] == 0x3A
    if left == 5 or is_word(outside) or (left == 0 and not doubled):
        if doubled:
            return NONE, NONE, run_stop
        start = colon + size  # a label with a colon before the address
    elif outside == 0x2E:
        return NONE, NONE, run_stop
    inside, width = before(text, start, stop)
    while inside == 0x2E:
        stop -= width
        inside, width = before(text, start, stop)
    if inside == 0x3A and before(text, start, stop - width)[0] != 0x3A:
        stop -= width
    if (stop == run_stop and is_word(code)) or not _parse_6(text, start, stop, groups):
        return NONE, NONE, run_stop
    if not _counts_6(groups, networks_4, count_4, networks_6, count_6, public_only):
        return NONE, NONE, run_stop
    return start, stop, run_stop
