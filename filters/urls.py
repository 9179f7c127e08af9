"""Block lists of domains, URLs and words over the URL of a record: the stage ``urls``.

Source: the URL filter of RefinedWeb (Penedo et al., arXiv 2306.01116, appendix G.1), with lists of the user's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from corpus.errors import UsageError
from corpus.stages import RecordStage, Rule, Signal, StageConfig, TextBatch, stage

if TYPE_CHECKING:
    import pyarrow as pa

    from filters.url_lists import UrlLists

LISTS = ("domains", "hosts", "urls", "words")
File = Annotated[str, Field(min_length=1)] | None


class UrlsConfig(StageConfig):
    """Settings of ``urls``. A list is a UTF-8 file with one entry per line; lines that begin with # are comments."""

    column: str = Field(default="url", min_length=1, description="Column of the records with the URL.")
    domains: File = Field(
        default=None, description="File of domains; a listed domain and every host below it are dropped."
    )
    hosts: File = Field(default=None, description="File of hosts that are dropped; hosts below them are not.")
    urls: File = Field(default=None, description="File of URLs that are dropped; scheme and fragment do not count.")
    words: File = Field(default=None, description="File of words, looked for among the words of the URL.")
    maximum_words: Annotated[int, Field(ge=0)] = Field(
        default=0, description="Most different listed words that a URL may have."
    )
    missing: Literal["drop", "keep"] = Field(default="keep", description="What becomes of records without a URL.")


@stage("urls")
class Urls(RecordStage):
    """Drops records whose URL is on a list.

    The host is compared in lower case and in its ASCII form (``münchen.de`` is ``xn--mnchen-3ya.de``), without user,
    port and final dot. The words of a URL are its runs of letters, marks and digits after percent-decoding, without
    regard to capitals; a listed word must be one of them. At least one list must be given.
    """

    Config = UrlsConfig
    summary = "Block lists of domains, hosts, URLs and words, over the URL in a column of the user's."
    config: UrlsConfig
    _lists: UrlLists | None = None

    def user_columns(self) -> Mapping[str, str]:
        """Return the column of URLs."""
        return {"column": self.config.column}

    def signals(self) -> tuple[Signal, ...]:
        """Return the host and what is listed of the URL."""
        return (
            Signal("host", "string", "Host of the URL in ASCII; null without a URL."),
            Signal("listed", "string", "First entry of the lists that the URL matches; null if there is none."),
            Signal("listed_domain", "int64", "1 if the host or a domain above it is listed, else 0."),
            Signal("listed_host", "int64", "1 if the host is listed, else 0."),
            Signal("listed_url", "int64", "1 if the URL is listed, else 0."),
            Signal("listed_words", "int64", "Different listed words in the URL."),
        )

    def rules(self) -> tuple[Rule, ...]:
        """Return the rules whose list is given."""
        rules = [] if self.config.missing == "keep" else [Rule("missing", "host", "is_set")]
        for name, signal in (("domains", "listed_domain"), ("hosts", "listed_host"), ("urls", "listed_url")):
            if getattr(self.config, name) is not None:
                rules.append(Rule(name, signal, "at_most", 0.0))
        if self.config.words is not None:
            rules.append(Rule("maximum_words", "listed_words", "at_most", float(self.config.maximum_words)))
        return tuple(rules)

    def fingerprint(self) -> Mapping[str, str]:
        """Return the SHA-256 of each list. Raises UsageError if there is none, or one cannot be read."""
        from corpus.list_files import list_digest

        return {name: list_digest(path, f"{self.name}.{name}") for name, path in self._files().items()}

    def prepare(self) -> None:
        """Read the lists. Raises UsageError if there is none, or one cannot be used."""
        from filters.url_lists import read_url_lists

        self._lists = read_url_lists(self._files(), self.name)

    def measure(self, batch: TextBatch) -> dict[str, pa.Array]:
        """Return the six signals of each record."""
        import pyarrow as pa

        from corpus.user_columns import user_values
        from filters.url_lists import BLANKS

        if self._lists is None:
            raise RuntimeError("call prepare() before measure()")
        found = [
            self._lists.find(value) if isinstance(value, str) and value.strip(BLANKS) else (None, None, 0, 0, 0, 0)
            for value in user_values(batch.records, self.config.column)
        ]
        columns = zip(*found, strict=True) if found else [()] * 6
        kinds = (pa.string(), pa.string(), pa.int64(), pa.int64(), pa.int64(), pa.int64())
        return {
            signal.name: pa.array(values, kind)
            for signal, values, kind in zip(self.signals(), columns, kinds, strict=True)
        }

    def _files(self) -> dict[str, str]:
        files = {name: path for name in LISTS if (path := getattr(self.config, name)) is not None}
        if not files:
            raise UsageError(f"{self.name}: no list is given; name a file as {', '.join(LISTS[:-1])} or {LISTS[-1]}")
        return files
