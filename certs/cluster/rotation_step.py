"""Rotation steps of trust domains: one at a time, and which of them undo a change by another writer."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from certs.cluster.api import OvertakenError
from certs.cluster.loop import MENDED, Action, TaskResult, format_error
from certs.cluster.trust_domain import TrustDomain
from certs.errors import CertsError
from certs.rotation import Bundle, Publish, RotationState, Step, find_due_steps


class RotationStepper:
    """Takes the steps that are due."""

    def __init__(self) -> None:
        self._right: dict[tuple[str, str], Bundle] = {}
        """The bundle in each place when last correct: if it is wanted and missing, another writer changed it."""

    async def take_step(self, domains: Sequence[TrustDomain], errors: list[str], now: datetime) -> TaskResult:
        """Take the first step that is due and possible; `errors` is extended by the reasons why others are not."""
        states = [(domain, domain.build_state()) for domain in domains]
        ends = {name: at for domain in domains for name, at in domain.list_ends()}
        for domain, state in states:
            self._note(domain, state)
            for step in find_due_steps(state, domain.lifetimes, now):
                try:
                    action = await domain.take(step, now)
                except OvertakenError:
                    return TaskResult(None, tuple(errors), ends, is_overtaken=True)
                except CertsError as error:
                    errors.append(format_error(error))
                else:
                    return TaskResult(self._mark_mended(domain, state, step, action), tuple(errors), ends)
        return TaskResult(None, tuple(errors), ends)

    def _note(self, domain: TrustDomain, state: RotationState) -> None:
        wanted = _build_wanted_bundle(state)
        for place, trusts in state.places.items():
            if all(trust == wanted for trust in trusts):
                self._right[domain.ca.name, place] = wanted

    def _mark_mended(self, domain: TrustDomain, state: RotationState, step: Step, action: Action) -> Action:
        if isinstance(step, Publish) and self._right.get((domain.ca.name, step.place)) == _build_wanted_bundle(state):
            return replace(action, kind=MENDED, text=f"{action.text} again: it had been changed")
        return action


def _build_wanted_bundle(state: RotationState) -> Bundle:
    return frozenset(generation.certificate for generation in state.generations)
