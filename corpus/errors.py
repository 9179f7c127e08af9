"""Errors that a user can act on; the command line prints them without a traceback."""

from __future__ import annotations


class ThresherError(Exception):
    """The run failed (exit code 1). The message names what is wrong and what to do about it."""

    exit_code = 1


class UsageError(ThresherError):
    """The command, the config or the input cannot be used (exit code 2); nothing was done."""

    exit_code = 2


class CheckFailedError(ThresherError):
    """A check found a difference (exit code 3)."""

    exit_code = 3
