"""Limits of a selection as exact decimals: a share of 0.29 of 100 records is 29, not 28.

A float is what the decimal in a config became when it was read; its shortest representation that reads back as the
same float (Python's ``repr``) is that decimal again, for up to 15 significant digits. This module is light: config
models import it.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from fractions import Fraction

# The smallest positive float is about 5e-324; beyond this an exact product would have absurdly many digits.
MAX_EXPONENT = 400


def exact_decimal(value: Decimal | float | str) -> Decimal:
    """Return a number of a config as the exact decimal that was written there.

    Raises:
        ValueError: it is no finite number of zero or more, or its exponent is beyond ``MAX_EXPONENT``.
    """
    if isinstance(value, bool):
        raise ValueError(f"{value} is not a number; wanted is a decimal of 0 or more, such as 0.25")
    try:
        number = Decimal(repr(value) if isinstance(value, float) else value)
    except (InvalidOperation, TypeError, ValueError):
        raise ValueError(f"{value!r} is not a number; wanted is a decimal of 0 or more, such as 0.25") from None
    if not number.is_finite() or number < 0 or abs(number.adjusted()) > MAX_EXPONENT:
        raise ValueError(f"{value} is out of range; wanted is a finite decimal of 0 or more, such as 0.25")
    return number


def floor_share(share: Decimal, total: int) -> int:
    """Return floor(share x total), computed exactly; both are 0 or more."""
    exact = Fraction(share) * total
    return exact.numerator // exact.denominator
