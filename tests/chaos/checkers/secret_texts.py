"""Nothing secret in any log, record, Event or page."""

import re
from collections.abc import Iterator

import msgspec

from tests.chaos.checkers.facts import Facts
from tests.chaos.checkers.judging import Judge

PATTERNS = {
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    "a token": re.compile(r"eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{20,}"),
    "an Authorization header": re.compile(r"(?i)authorization[\"']?\s*[:=]\s*[\"']?bearer\s+[\w.-]{8,}"),
    "a password in a URL": re.compile(r"rediss?(?:\+\w+)?://[^\s/:@\"']*:[^\s/@\"']+@"),
}
_SHOWN_MAX = 12


def check_secrets(facts: Facts, judge: Judge) -> None:
    """Search each text that the product wrote. `secrets` of the plan's details are the run's own passwords."""
    secrets = [str(secret) for secret in facts.history.plan.details.get("secrets", ())]
    for of, text in _list_texts(facts):
        found = [(what, match[0]) for what, pattern in PATTERNS.items() if (match := pattern.search(text))]
        found += [("a password", secret) for secret in secrets if secret in text]
        for what, value in found or [("", "")]:
            place = text.find(value)
            judge.expect(
                holds=not what,
                of=of,
                field=f"line {text.count(chr(10), 0, place) + 1}" if what else "text",
                value=f"{what}: {value[:_SHOWN_MAX]}..." if what else "nothing secret",
                expected="nothing secret",
                at=facts.history.end.at if facts.history.end is not None else 0,
            )


def _list_texts(facts: Facts) -> Iterator[tuple[str, str]]:
    history = facts.history
    for part, text in history.logs.items():
        yield f"log of {part}", text
    yield "decision records", "\n".join(msgspec.json.encode(review).decode() for review in history.reviews)
    if history.end is not None:
        for part, text in history.end.metrics.items():
            yield f"metrics of {part}", text
        for part, document in history.end.statuses.items():
            yield f"status of {part}", msgspec.json.encode(document).decode()
        yield "Events", "\n".join(msgspec.json.encode(event).decode() for event in history.end.events)
