"""Private data in texts: the stage ``pii``.

What other tools do: datatrove 0.10 (``PIIFormatter``, used for FineWeb, arXiv 2406.17557) replaces e-mail
and public IPv4 addresses by examples in turn; Dolma (arXiv 2402.00159) puts a token for e-mail, IP and
phone in the place of up to five findings and drops documents with more; StarCoder (arXiv 2305.06161) puts
tokens such as ``<EMAIL>``; C4 leaves private data in.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from corpus.stages import EditingStage, Judgement, Rule, Signal, StageConfig, TextBatch, TextField, stage

Treatment = Literal["redact", "drop", "flag", "off"]

# In the order of the kernel's numbers of kinds: config field and signal, field of the replacement, what it counts.
KINDS = (
    ("emails", "email_replacement", "E-mail addresses."),
    ("ip_addresses", "ip_address_replacement", "IP addresses, of versions 4 and 6."),
    ("phone_numbers", "phone_number_replacement", "Phone numbers."),
    ("payment_cards", "payment_card_replacement", "Payment-card numbers with a right check digit."),
    ("ibans", "iban_replacement", "International bank account numbers with right check digits."),
)

Replacement = Annotated[str, Field(max_length=100)]


class PiiConfig(StageConfig):
    """Settings of ``pii``: what happens to each kind, and what is put in its place.

    redact puts the replacement in its place; drop drops the record; flag only lists it in ``evidence/``; off does not
    even that. In each case the signals count it.
    """

    field: TextField | None = Field(
        default=None, description="Field that is searched; default both: each field of a pair by itself."
    )
    emails: Treatment = Field(default="redact", description="What happens to e-mail addresses.")
    ip_addresses: Treatment = Field(default="redact", description="What happens to IP addresses.")
    phone_numbers: Treatment = Field(default="redact", description="What happens to phone numbers.")
    payment_cards: Treatment = Field(default="redact", description="What happens to payment-card numbers.")
    ibans: Treatment = Field(default="redact", description="What happens to IBANs.")
    public_ip_only: bool = Field(
        default=True, description="Leave private, loopback, documentation and other special addresses as they are."
    )
    email_replacement: Replacement = Field(default="<EMAIL>", description="In the place of an e-mail address.")
    ip_address_replacement: Replacement = Field(
        default="<IP_ADDRESS>", description="Put in the place of an IP address."
    )
    phone_number_replacement: Replacement = Field(
        default="<PHONE_NUMBER>", description="Put in the place of a phone number."
    )
    payment_card_replacement: Replacement = Field(
        default="<PAYMENT_CARD>", description="Put in the place of a card number."
    )
    iban_replacement: Replacement = Field(default="<IBAN>", description="In the place of an IBAN.")


@stage("pii")
class Pii(EditingStage):
    """Redacts, drops or flags e-mail and IP addresses, phone and payment-card numbers, and IBANs.

    The exact rules are those of ``filters.pii_reference``. In short:

    - *E-mail*: a local part of letters, digits and ``. _ % + -``, at most 64; a domain with a dot whose last label
      has two letters or more, also internationalised. Users in URLs, ``git@host:path``, ``icon@2x.png`` and
      ``package@1.2.3`` are none. Spelt-out signs ("name at example dot org") are not looked for.
    - *IP*: version 4 with four octets and nothing joined to them; not behind a word such as "version" or ``§``. A
      version without such a word cannot be told from an address, and is found. Version 6 in every form of RFC 4291.
      By default only public ones (registries of IANA), as datatrove does for version 4.
    - *Phone*: with + or 00, by calling code and length (ITU-T E.164); the national forms that can be told from other
      numbers: North America with hyphens, dots or parentheses, a trunk prefix 0 with separators, Brazil, Russia, mobile
      numbers of China; seven to fifteen digits behind a word such as "phone", in some twenty languages.
    - *Card*: prefix and length of a network, right check digit (Luhn), in the groups of the card or in one piece, but
      not in brackets as a number of a program.
    - *IBAN*: length by country and check digits (ISO 13616, ISO 7064 mod 97-10), in one piece or in groups of four.

    Full-width, Arabic-Indic and Persian digits count as digits, and full-width signs, no-break spaces and hyphens as
    those of ASCII. Spans do not overlap: what begins first wins, at one place IBAN, IP address, card, phone in this
    order, and an e-mail address wins over a number in its local part. The choice between kinds does not depend on the
    settings.

    A replacement is the same for every finding, so that the result does not depend on the order of the records, and by
    default a token that no rule here finds again: an example address could not be told from what was written. Neither
    ledger nor evidence holds what was found.
    """

    Config = PiiConfig
    default_field = "both"
    summary = "E-mail and IP addresses, phone and card numbers, IBANs: redact, drop or flag."
    config: PiiConfig

    def edits(self) -> bool:
        """Say whether any kind is redacted."""
        return any(getattr(self.config, kind) == "redact" for kind, _, _ in KINDS)

    def own_signals(self) -> tuple[Signal, ...]:
        """Return the count of each kind."""
        return tuple(Signal(kind, "int64", description) for kind, _, description in KINDS)

    def own_rules(self) -> tuple[Rule, ...]:
        """Return a rule for each kind that drops records."""
        return tuple(Rule(kind, kind, "at_most", 0.0) for kind, _, _ in KINDS if getattr(self.config, kind) == "drop")

    def prepare(self) -> None:
        """Load the kernel."""
        import filters.pii_spans  # noqa: F401

    def judge(self, batch: TextBatch) -> Judgement:
        """Return the counts of each kind, and spans for all kinds that are not off."""
        import numpy as np
        import pyarrow as pa

        from corpus.findings import byte_spans
        from filters.pii_spans import find_in_batch

        rows, starts, stops, kinds = find_in_batch(batch.texts, batch.alive, self.config.public_ip_only)
        counts = np.bincount(rows * len(KINDS) + kinds, minlength=len(batch) * len(KINDS)).reshape(-1, len(KINDS))
        signals = {kind: pa.array(counts[:, number].astype(np.int64)) for number, (kind, _, _) in enumerate(KINDS)}
        treatments = [getattr(self.config, kind) for kind, _, _ in KINDS]
        listed = np.array([treatment != "off" for treatment in treatments])[kinds]
        rows, starts, stops, kinds = rows[listed], starts[listed], stops[listed], kinds[listed]
        rules = pa.array([kind for kind, _, _ in KINDS]).take(pa.array(kinds))
        replacements = pa.array(
            [
                getattr(self.config, replacement) if treatment == "redact" else None
                for treatment, (_, replacement, _) in zip(treatments, KINDS, strict=True)
            ],
            pa.string(),
        ).take(pa.array(kinds))
        findings = byte_spans(batch.texts, rows, starts, stops, rules, "flag", replacements)
        actions = pa.array(treatments).take(pa.array(kinds))
        place = findings.schema.get_field_index("action")
        return Judgement(signals, findings.set_column(place, findings.schema.field(place), actions))
