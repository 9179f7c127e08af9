"""Facts behind the stage ``pii``: numbering plans, account lengths, special networks, and words that give a hint.

All tables are NumPy arrays, built once per process, read-only, in the form that the kernels read.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from ipaddress import IPv4Network, IPv6Network

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

NATIONAL_LENGTHS = {
    (6, 6): "298 299 672 681 687",
    (6, 7): "597 676 677 678 683 688 690",
    (6, 8): "686",
    (6, 9): "40 252 359 376 421 508",
    (6, 10): "53 63 95 98 358 685 880",
    (6, 11): "49 352",
    (6, 12): "39",
    (6, 13): "43",
    (7, 7): "238 239 246 248 269 291 297 501 592 673 674 679 680 691 692 960",
    (7, 8): "230 267 372 507 599 670 675 961 975",
    (7, 9): "46 48 220 231 241 254 265 354 423 595 967",
    (7, 10): "243 353",
    (7, 12): "62 381 882",
    (
        8,
        8,
    ): "45 47 65 216 222 223 226 227 228 232 235 236 253 257 266 268 350 356 357 370 371 373 374 382 386 389 502 503 "
    "504 505 506 509 591 598 689 800 808 852 853 965 968 973 974 993",
    (8, 9): "32 36 51 66 213 224 250 258 264 355 377 385 387 593 855 886 962 963 970 971",
    (8, 10): "20 57 60 64 82 225 229 234 378 850 856 964 976 977",
    (8, 12): "383 883 972",
    (
        9,
        9,
    ): "27 33 34 41 56 61 93 94 211 212 218 221 233 237 240 242 244 245 249 251 255 256 260 261 262 263 351 375 380 "
    "420 590 594 596 966 979 992 994 995 996 998",
    (9, 10): "44 81 84 92 881",
    (9, 11): "31 86",
    (9, 12): "870",
    (10, 10): "1 7 30 52 58 90 91",
    (10, 11): "54 55",
}
"""Fewest and most digits of a number after each calling code.

Sources: ITU-T E.164 (assigned country codes) and the national numbering plans notified to ITU-T (E.129). Numbers of
fewer than six digits after the code are left out: they are service numbers and a few small islands.
"""

ZERO_KEPT = "39 225 229 241 242 378"
"""Calling codes behind which a number may begin with 0; elsewhere that digit is only dialled inside the country."""

IBAN_LENGTHS = {
    15: "NO",
    16: "BE",
    18: "DK FI FK FO GL NL SD",
    19: "MK SI",
    20: "AT BA EE KZ LT LU MN XK",
    21: "CH HR LI LV",
    22: "BG BH CR DE GB GE IE ME RS VA",
    23: "AE GI IL IQ OM SO TL",
    24: "AD CZ ES MD PK RO SA SE SK TN VG",
    25: "LY PT ST",
    26: "IS TR",
    27: "BI DJ FR GR IT MC MR SM",
    28: "AL AZ BY CY DO GT HN HU LB NI PL SV",
    29: "BR EG PS QA UA",
    30: "JO KW MU YE",
    31: "MT SC",
    32: "LC",
    33: "RU",
}
"""Length of an IBAN by country. Source: the IBAN registry of SWIFT (ISO 13616), release 101."""

CARD_PREFIXES = (
    ("4", "4", (16, 19)),  # Visa
    ("51", "55", (16,)),  # Mastercard
    ("2221", "2720", (16,)),  # Mastercard
    ("34", "34", (15,)),  # American Express
    ("37", "37", (15,)),
    ("300", "305", (14,)),  # Diners Club
    ("36", "36", (14,)),
    ("38", "39", (14,)),
    ("6011", "6011", (16, 19)),  # Discover
    ("644", "659", (16, 19)),
    ("3528", "3589", (16, 19)),  # JCB
    ("62", "62", (16, 19)),  # UnionPay
    ("2200", "2204", (16, 19)),  # Mir
    ("5018", "5018", (16,)),  # Maestro
    ("5020", "5020", (16,)),
    ("5038", "5038", (16,)),
    ("6304", "6304", (16, 19)),
    ("6759", "6763", (16, 19)),
)
"""First and last prefix of the networks' ranges, with the lengths of their numbers. Source: ISO/IEC 7812 ranges as
the networks publish them; the rare or disused lengths 12, 13, 17 and 18 are left out: most such numbers are others."""

LOCAL_NETWORKS_4 = (
    "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 "
    "192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4"
)
"""Networks whose addresses are nobody's: private, loopback, shared, documentation, benchmarking, multicast, reserved.
Source: IANA IPv4 Special-Purpose Address Registry (RFC 6890), and 224.0.0.0/4 of the IPv4 address space registry."""

IDENTIFIER_ARCS = "2.5.4. 2.5.29."
"""Object identifiers of X.520 and X.509 that look like addresses, as they stand in programs and certificates."""

PUBLIC_NETWORKS_6 = (
    "2001::/16 2002::/16 2003::/18 2400::/12 2600::/12 2610::/23 2620::/23 2630::/12 2800::/12 2a00::/12 2a10::/12 "
    "2c00::/12"
)
"""What is allocated of the global unicast space. Source: IANA IPv6 Global Unicast Address Assignments."""

LOCAL_NETWORKS_6 = "2001::/23 2001:db8::/32"
"""What is not public inside of it. Source: IANA IPv6 Special-Purpose Address Registry."""

OTHER_NETWORKS_6 = "::1/128 2000::/3 fc00::/7 fe80::/10 ff00::/8"
"""The rest that can be an address at all: loopback, global unicast, unique local, link local, multicast (RFC 4291).
Without this limit scopes of programs, such as ``dead::beef``, would be addresses."""

PHONE_WORDS = (
    "tel phone telephone mobile cell cellphone fax whatsapp viber gsm telefon telefono teléfono telefone téléphone tél "
    "portable mobil móvil celular celulare handy telefax tlf tfno telefoon mobiel puhelin telefonszám "
    "тел Тел ТЕЛ телефон Телефон факс Факс моб Моб τηλ Τηλ τηλέφωνο "
    "电话 電話 电话号码 手机 手机号 手機 手机号码 传真 傳真 携帯 携帯電話 電話番号 전화 전화번호 휴대폰 연락처 팩스 "
    "هاتف تلفن جوال موبايل טלפון फोन मोबाइल โทร thoại call\0me call\0us"
)
"""Words before a phone number. Letters of ASCII match in either case."""

PHONE_FILLERS = "number no nr num numero número is at on nummer numéro number\0is 是 为 は"
"""What may stand between such a word and the number."""

VERSION_WORDS = (
    "version versions release releases ver v vers rev revision build firmware driver patch update upgrade kernel sdk "
    "section sections chapter clause paragraph appendix kapitel abschnitt "
    "versión versão versione versie sürüm wersja wersji версия версии Версия 版本 バージョン 버전"
)
"""Words after which four dotted numbers are a version or a section."""


def _read_only(array: npt.NDArray[np.generic]) -> None:
    array.setflags(write=False)


@cache
def calling_codes() -> Numbers:
    """Return int64[1000]: bit i is set where a number of i digits may follow the calling code, bit 0 where it may
    begin with 0; 0 where there is no such code."""
    table = np.zeros(1000, np.int64)
    for (fewest, most), codes in NATIONAL_LENGTHS.items():
        for code in codes.split(" "):
            table[int(code)] = sum(1 << length for length in range(fewest, most + 1))
    table[np.array(ZERO_KEPT.split(" "), np.int64)] |= 1
    _read_only(table)
    return table


@cache
def iban_lengths() -> Numbers:
    """Return int64[676]: length of the IBANs of a country, by its two letters as a number to the base 26; 0 if none."""
    table = np.zeros(26 * 26, np.int64)
    for length, countries in IBAN_LENGTHS.items():
        for country in countries.split(" "):
            table[(ord(country[0]) - 65) * 26 + ord(country[1]) - 65] = length
    _read_only(table)
    return table


@cache
def card_lengths() -> Numbers:
    """Return int64[10000]: bit i is set where cards whose first four digits are the index have i digits."""
    table = np.zeros(10_000, np.int64)
    for first, last, lengths in CARD_PREFIXES:
        low, high = int(first.ljust(4, "0")), int(last.ljust(4, "9"))
        table[low : high + 1] |= sum(1 << length for length in lengths)
    _read_only(table)
    return table


@cache
def local_networks_4() -> Numbers:
    """Return int64[2, n]: address and mask of the IPv4 networks that are not public."""
    networks = [IPv4Network(text) for text in LOCAL_NETWORKS_4.split(" ")]
    table = np.array([[int(net.network_address) for net in networks], [int(net.netmask) for net in networks]], np.int64)
    _read_only(table)
    return table


@cache
def networks_6() -> Numbers:
    """Return int64[3, n]: upper 64 bits of address and mask of IPv6 networks, and what they are: 0 for local, 1 for
    public, 2 for another address; the first that matches decides.

    The loopback address is left to the kernel, for its lower bits count.
    """
    rows: list[tuple[int, int, int]] = []
    for kind, text in enumerate((LOCAL_NETWORKS_6, PUBLIC_NETWORKS_6, OTHER_NETWORKS_6)):
        networks = [network for network in map(IPv6Network, text.split(" ")) if network.prefixlen <= 64]
        rows += [(int(net.network_address) >> 64, int(net.netmask) >> 64, kind) for net in networks]
    table: Numbers = np.array(rows, np.uint64).astype(np.int64).T.copy()
    _read_only(table)
    return table


@cache
def packed_words(text: str) -> tuple[npt.NDArray[np.int32], Bytes]:
    """Return words as (offsets, UTF-8 bytes), in the form of ``corpus.text.text_buffers``; a NUL stands for a space."""
    words = [word.replace("\0", " ").encode() for word in text.split(" ")]
    offsets = np.cumsum([0, *map(len, words)]).astype(np.int32)
    data = np.frombuffer(b"".join(words), np.uint8)
    _read_only(offsets)
    return offsets, data


def word_list(text: str) -> Iterable[str]:
    """Return the words of a list as plain text."""
    return (word.replace("\0", " ") for word in text.split(" "))
