"""Scheduling of test modules on pytest-xdist workers: whole modules, the longest first, clusters on half of them."""

from collections.abc import Iterable

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

STARVING = "measure or starve others"
"""Modules that load the machine, or measure on it: one after another on one worker."""

GROUPS = {
    "tests/architecture/test_design_pages.py": "tests/architecture",
    "tests/architecture/test_glossary.py": "tests/architecture",
    "tests/architecture/test_house.py": "tests/architecture",
    "tests/architecture/test_tree.py": "tests/architecture",
    "tests/adapters/redis_store/test_outages.py": STARVING,
    "tests/adapters/redis_store/test_partitions.py": STARVING,
    "tests/bench/test_apiserver.py": STARVING,
    "tests/bench/test_bench.py": STARVING,
    "tests/bench/test_servers.py": STARVING,
    "tests/contract/test_race.py": STARVING,
    "tests/server/test_flood.py": STARVING,
    "tests/server/test_fuzz.py": STARVING,
    "tests/compose/test_compose_file.py": "tests/compose",
    "tests/compose/test_dockerfile.py": "tests/compose",
    "tests/compose/test_running.py": "tests/compose",
    "tests/scheduling/test_extender_calls.py": "tests/scheduling",
    "tests/scheduling/test_extender_failures.py": "tests/scheduling",
    "tests/scheduling/test_hot_nodes.py": "tests/scheduling",
    "tests/scheduling/test_load_sources.py": "tests/scheduling",
    "tests/core/placement/test_findings.py": "tests/core/placement",
    "tests/core/placement/test_generators.py": "tests/core/placement",
    "tests/core/placement/test_patches.py": "tests/core/placement",
}
"""Modules that share a worker, and so session fixtures and cached values; each other module is its own group."""

LONGEST_FIRST = (
    "tests/cluster/test_certificates.py",
    "tests/cluster/test_rotation.py",
    "tests/chaos/test_chaos.py",
    "tests/chaos/test_planted.py",
    STARVING,
    "tests/cluster/test_apiserver_files.py",
    "tests/cluster/test_placement_and_quota.py",
    "tests/cluster/test_controller_restarts.py",
    "tests/cluster/test_availability.py",
    "tests/cluster/test_service_statuses.py",
    "tests/cluster/test_pod_starts.py",
    "tests/cluster/test_refunds.py",
    "tests/cluster/test_lease.py",
    "tests/cluster/test_authentication.py",
    "tests/server/test_hardening.py",
    "tests/adapters/redis_store/test_error_classes.py",
    "tests/contract/test_stores_agree.py",
    "tests/authentication/test_secret_path.py",
)
"""Groups that would otherwise end last, alone on the machine."""

API_ALONE = frozenset(
    f"tests/cluster/test_{name}.py"
    for name in (
        *("api_types", "apiserver_files", "behind_a_proxy", "check_replicas", "console", "console_acts"),
        *("controller_restarts", "event_limits", "lease", "left_out_calls", "limit_range", "policy_suggest"),
        *("port_forward", "rollout_commands", "rollout_objects", "server_leases", "service_statuses"),
        *("slot_owners", "slot_watch", "two_clusters"),
    )
)
"""Modules that share the API server alone, while the others of `tests/cluster` share a whole cluster."""

_CLUSTER = "tests/cluster"


def group_of(nodeid: str) -> str:
    """Return the name of the group that a test belongs to."""
    module = nodeid.partition("::")[0]
    return GROUPS.get(module, module)


class ModuleScheduling(LoadScopeScheduling):
    """Schedules whole modules in the order of LONGEST_FIRST.

    Each worker that runs a module of `tests/cluster` starts a cluster for it, or an API server alone, and keeps it in
    that folder. So half of the workers take those modules first, each of them one kind while there are any, and the
    other half takes them last. A worker starts a test only when it has the next one, so a worker with a long module
    gets a short one as the next.
    """

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        candidates = _select_groups(node, self.workqueue)
        is_busy = any(not all(tests.values()) for tests in self.assigned_work[node].values())
        chosen = candidates[-1] if is_busy and self._has_long(node) else _choose_first(candidates)
        self.workqueue.move_to_end(chosen, last=False)
        super()._assign_work_unit(node)

    def _has_long(self, node: WorkerController) -> bool:
        work = self.assigned_work[node].items()
        return any(group in LONGEST_FIRST and not all(tests.values()) for group, tests in work)


def _select_groups(node: WorkerController, groups: Iterable[str]) -> list[str]:
    """Return the groups of the worker's kind, else those of its half, else all groups."""
    everything = list(groups)
    number = int(node.gateway.id.removeprefix("gw"))
    half = [group for group in everything if group.startswith(_CLUSTER) == (number % 2 == 0)] or everything
    return [group for group in half if (group in API_ALONE) == (number % 4 == 2)] or half


def _choose_first(groups: list[str]) -> str:
    return min(groups, key=lambda group: LONGEST_FIRST.index(group) if group in LONGEST_FIRST else len(LONGEST_FIRST))
