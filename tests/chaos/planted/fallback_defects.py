"""Defects of outages: shares, bookings, losses, withdrawals."""

from tests.chaos.planted.defect import Defect, of

DEFECTS = (
    Defect(
        "a replica takes all that was left while Redis is away",
        "away",
        of("windows"),
        "webhook/core/ledger/replica_share.py",
        "        each, rest = divmod(left, self.replicas)",
        "        each, rest = divmod(left, 1)",
    ),
    Defect(
        "what was admitted without Redis is never charged",
        "away",
        of("charges"),
        "webhook/fallback/reconciler.py",
        "            booked = await self._store.book(plan, [entry.booking for entry in entries])",
        "            booked = len(entries)",
    ),
    Defect(
        "what was admitted without Redis is charged at another time",
        "away",
        of("charges"),
        "webhook/fallback/backlog.py",
        "        return Booking(request.namespace, request.uid, request.cost, self.at_us, request.name, request.team)",
        "        at_us = self.at_us - 700_000\n"
        "        return Booking(request.namespace, request.uid, request.cost, at_us, request.name, request.team)",
        past="Pods that were admitted without Redis left their windows too early",
    ),
    Defect(
        "a loss of data is not made up for",
        "flush",
        of("charges", "windows", "agreement"),
        "webhook/fallback/fallback.py",
        "        recent, current = self._outage.rebook_recent(), {plan.key: plan for plan in self._plans}",
        "        recent, current = dict[tuple[str, str], CounterPlan](), {plan.key: plan for plan in self._plans}",
    ),
    Defect(
        "a Pod that Redis charged too late keeps its place",
        "away",
        of("charges"),
        "webhook/fallback/outage_admission.py",
        "            self.withdraw(request, error)\n",
        "            pass\n",
        past="A Pod that is denied because Redis answered too late takes no place any more",
    ),
    Defect(
        "an admitted Pod is denied when it is asked again without Redis",
        "away",
        of("judged"),
        "webhook/fallback/outage_admission.py",
        "        if self.recent.has_admitted(request):",
        "        if self.recent.has_admitted(request) and plan.when_unavailable is WhenStoreUnavailable.ALLOW:",
        past="While Redis does not respond, a replica admits again what it has admitted within the last minute",
    ),
    Defect(
        "Allow denies while Redis is away",
        "away",
        of("failures"),
        "webhook/core/admission/denials.py",
        "        admits = plan.when_unavailable is WhenStoreUnavailable.ALLOW",
        "        admits = plan.when_unavailable is WhenStoreUnavailable.LOCAL",
    ),
    Defect(
        "Deny admits while Redis is away",
        "away",
        of("windows"),
        "webhook/core/admission/denials.py",
        "        admits = plan.when_unavailable is WhenStoreUnavailable.ALLOW",
        "        admits = True",
    ),
    Defect(
        "a replica never leaves its fallback",
        "rest",
        of("agreement"),
        "webhook/fallback/reconciler.py",
        "        del self._fallbacks[key]\n",
        "        return True\n        del self._fallbacks[key]\n",
    ),
)
