"""All checkers of a history."""

from collections.abc import Callable, Mapping, Sequence

from tests.chaos.checkers.agreement import check_agreement
from tests.chaos.checkers.breakers import check_breakers
from tests.chaos.checkers.charges import check_charges
from tests.chaos.checkers.denials import check_denials
from tests.chaos.checkers.divided import check_shares
from tests.chaos.checkers.facts import Facts
from tests.chaos.checkers.failures import check_failures
from tests.chaos.checkers.gates import check_gates
from tests.chaos.checkers.judged import check_judged
from tests.chaos.checkers.judging import Judge, Violation
from tests.chaos.checkers.secret_texts import check_secrets
from tests.chaos.checkers.windows import check_windows
from tests.chaos.history import History

CHECKERS: Mapping[str, Callable[[Facts, Judge], None]] = {
    "windows": check_windows,
    "denials": check_denials,
    "charges": check_charges,
    "judged": check_judged,
    "breakers": check_breakers,
    "failures": check_failures,
    "gates": check_gates,
    "shares": check_shares,
    "agreement": check_agreement,
    "secrets": check_secrets,
}


def judge(history: History) -> Sequence[Judge]:
    """Return what each checker says of a history."""
    facts = Facts(history)
    judges = [Judge(name, facts.faults) for name in CHECKERS]
    for each in judges:
        CHECKERS[each.checker](facts, each)
    return judges


def check(history: History) -> list[Violation]:
    """Return all that must not be in a history, in the order of its time."""
    return sorted((found for each in judge(history) for found in each.violations), key=lambda found: found.at)
