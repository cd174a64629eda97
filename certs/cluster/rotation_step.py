"""Rotation steps of trust domains: one at a time, and which of them undo a change by another writer."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from certs.cluster.api import OvertakenError
from certs.cluster.loop import MENDED, Action, TaskResult, message_of
from certs.cluster.trust_domain import TrustDomain
from certs.errors import CertsError
from certs.rotation import Bundle, Publish, RotationState, Step, due


class RotationStepper:
    """Takes the steps that are due."""

    def __init__(self) -> None:
        self._right: dict[tuple[str, str], Bundle] = {}
        """The bundle in each place when last correct: if it is wanted and missing, another writer changed it."""

    async def take_one(self, domains: Sequence[TrustDomain], errors: list[str], now: datetime) -> TaskResult:
        """Take the first step that is due and possible; `errors` is extended by the reasons why others are not."""
        states = [(domain, domain.state()) for domain in domains]
        ends = {name: at for domain in domains for name, at in domain.ends()}
        for domain, state in states:
            self._note(domain, state)
            for step in due(state, domain.lifetimes, now):
                try:
                    action = await domain.take(step, now)
                except OvertakenError:
                    return TaskResult(None, tuple(errors), ends, is_overtaken=True)
                except CertsError as error:
                    errors.append(message_of(error))
                else:
                    return TaskResult(self._judged(domain, state, step, action), tuple(errors), ends)
        return TaskResult(None, tuple(errors), ends)

    def _note(self, domain: TrustDomain, state: RotationState) -> None:
        wanted = _wanted(state)
        for place, trusts in state.places.items():
            if all(trust == wanted for trust in trusts):
                self._right[domain.ca.name, place] = wanted

    def _judged(self, domain: TrustDomain, state: RotationState, step: Step, action: Action) -> Action:
        if isinstance(step, Publish) and self._right.get((domain.ca.name, step.place)) == _wanted(state):
            return replace(action, kind=MENDED, text=f"{action.text} again: it had been changed")
        return action


def _wanted(state: RotationState) -> Bundle:
    return frozenset(generation.certificate for generation in state.generations)
