"""Choice of the policy that judges a request: the one in force, its candidate, or the one that a new Pod carries."""

from webhook.core.admission import mutation
from webhook.core.admission.decision import Half
from webhook.core.admission.mutation import HASH_ANNOTATION
from webhook.core.admission.review import Request
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.overrides.exceptions import choose_exception
from webhook.core.rollout.canary import BasePolicy
from webhook.ports import NamespaceLabels, PolicySource


class PolicyChoice:
    """Chooses a policy for each request, so that both calls for one Pod have the same."""

    def __init__(self, policies: PolicySource, namespaces: NamespaceLabels) -> None:
        self._policies = policies
        self._namespaces = namespaces

    def find(self, half: Half, request: Request) -> tuple[CompiledPolicy | None, bool] | None:
        """Return the policy for a request, and whether the policy hash in the Pod's annotation is known.

        The mutating half writes the hash of its policy into a new Pod; the validating half uses the same policy, even
        if the policy in force has changed in between. A hash that the Pod's creator sent chooses no former policy.
        None: the hash may belong to a policy that is not read yet.
        """
        current = self._policies.get_current()
        annotations = None if request.pod is None else request.pod.metadata.annotations
        carried = annotations.get(HASH_ANNOTATION) if annotations else None
        if current is not None and current.is_selective:
            return self._find_selected(half, request, current, carried)
        if carried is None or request.operation != "CREATE" or request.workload is not None:
            return current, True
        if current is not None and carried == current.hash:
            return current, True
        former = self._policies.find_by_hash(carried)
        if former is None and half is Half.VALIDATE:
            return None
        return self._choose(request, former)

    def _find_selected(
        self, half: Half, request: Request, current: CompiledPolicy, carried: str | None
    ) -> tuple[CompiledPolicy | None, bool] | None:
        """Return what `find` does, while a candidate judges a part of the requests, or exceptions are in force."""
        found = self._find_in_canary(half, request, current, carried)
        return found if found is None else _apply_exceptions(request, found)

    def _find_in_canary(
        self, half: Half, request: Request, current: CompiledPolicy, carried: str | None
    ) -> tuple[CompiledPolicy | None, bool] | None:
        """Return the policy for a request without its exceptions; without a candidate the one in force judges.

        A new Pod is judged by the policy whose hash Podgate has written, else by the one that its key selects; an
        existing Pod by the one that it was admitted under.
        """
        if request.operation != "CREATE":
            stored = request.old_pod or request.pod
            return current.choose_by_hash("" if stored is None else stored.annotations.get(HASH_ANNOTATION, "")), True
        if carried is None or request.workload is not None:
            return self._select(request, current), True
        former = self._policies.find_by_hash(carried)
        if former is None and half is Half.VALIDATE:
            return None
        return self._choose(request, former)

    def _select(self, request: Request, current: CompiledPolicy | None) -> CompiledPolicy | None:
        """Return the policy that judges a new Pod or a workload of which no hash says so."""
        return current.select(request, self._namespaces.find_labels) if isinstance(current, BasePolicy) else current

    def _choose(self, request: Request, chosen: CompiledPolicy | None) -> tuple[CompiledPolicy | None, bool]:
        """Return the policy that a Pod's hash has chosen, or the one in force if its creator sent the hash."""
        current = self._select(request, self._policies.get_current())
        if chosen is None or current is None or request.pod is None or chosen.hash == current.hash:
            return chosen or current, chosen is not None
        if mutation.is_hash_written(request.pod.metadata):
            return chosen, True
        return current, False

    async def refresh(self, request: Request) -> tuple[CompiledPolicy | None, bool]:
        """Return the policy after a refresh: another replica may have mutated the Pod under a newer policy."""
        await self._policies.refresh()
        annotations = {} if request.pod is None else request.pod.annotations
        chosen = self._policies.find_by_hash(annotations.get(HASH_ANNOTATION, ""))
        return _apply_exceptions(request, self._choose(request, chosen))


def _apply_exceptions(
    request: Request, found: tuple[CompiledPolicy | None, bool]
) -> tuple[CompiledPolicy | None, bool]:
    policy, hash_known = found
    return (None if policy is None else choose_exception(policy, request)), hash_known
