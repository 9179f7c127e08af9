import zlib

import numpy as np

from corpus.case_folding import LATER_THAN_UNICODE_13, fold, folding_table
from corpus.unicode_tables import code_points


def test_folding_is_simple_and_idempotent() -> None:
    table = folding_table()
    assert (table[table] == table).all()
    assert fold("ÄÖÜ ẞß ΣσςΙ Ёж İı ſK ᾈ \U00010400") == "äöü ßß σσσι ёж İı sk ᾀ \U00010428"
    assert fold("ASCII stays Ascii") == "ascii stays ascii"


def test_letters_that_some_interpreters_do_not_know_stay() -> None:
    table = folding_table()
    later = code_points(LATER_THAN_UNICODE_13)
    assert (table[later] == later).all()


def test_the_table_is_that_of_unicode_13_under_every_interpreter() -> None:
    table = folding_table()
    assert int((table != np.arange(len(table))).sum()) == 1414
    assert zlib.crc32(table.astype("<i4").tobytes()) == 4201727380
