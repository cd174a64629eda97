"""`make bench` and `make bench-quick`: costs of Podgate, as ratios to those of others in the same run.

`servers` compares webhook servers under the same load; `--quick` is its short form. Podgate runs with default settings
and traces: tokens, client certificates, quota, breaker, metrics, sampled logs. Go's standard library,
controller-runtime and kopf have a webhook with the same placement, aiohttp one with a constant response. All serve
TLS 1.3 with client certificates on one core; load generator, Redis and trace receiver run on another. CPU time is that
of the server's processes, from the operating system. `--before REVISION` adds the server of another commit,
`--interpreter PATH` today's under another Python, which has the locked packages; here and in `starts` and `rates`.

`rates`, `services`, `windows`, `containers`, `connections`, `processes`, `parents` and `refusals` compare fewer servers
under other loads. All of these, and `apiserver`, which creates Pods at a real API server, record their figures in
.test-results/bench.json; `--pictures` writes docs/performance.md from such a file.

The other parts measure within one process: opcodes of a review, which are the same in each run; evaluation of a large
Pod, in typed decodes of it; rules in CEL; cost of a breaker in a review; longest iterations of the event loop; an
acquire, compared with other rate limiters on the same Redis; and the controller with many Pods. `releases` measures
how fast a controller releases waiting Pods at a real API server, beside a client that only sends the same patches,
with the CPU time of all, etcd and Redis; `waiting` measures what 10,000 Pods cost that wait, and how soon they are
released. `starts` measures a server until it is ready, `idle` one without calls, and `memory` what a million reviews
leave of it resident. `policies` puts a policy into
force, and one that differs in a single service. `shares` measures the mutating call of a service with shares beside
the same service without, and `deployments` both in a Deployment of 1,000 Pods on a real control plane. `scheduling`
runs a real kube-scheduler without an extender, with one that passes all nodes, and with all rules. `scale`, which
runs only if it is named, grows a cluster to 50,000 Pods, and `--pictures` writes docs/scale.md from it.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import uvloop

from tests.bench import (
    breaker_cost,
    deployments,
    evaluation,
    full,
    idle,
    lineup,
    loop_stalls,
    memory,
    pod_rules,
    pods,
    policy_changes,
    quick,
    results,
    review_opcodes,
    shares,
    starts,
)
from tests.bench.acquires import acquires
from tests.bench.apiserver import creation
from tests.bench.page import fragments, scale
from tests.bench.real_redis import REDIS, real_redis
from tests.bench.releases import throughput as releases
from tests.bench.releases import waiting
from tests.bench.scale import growth
from tests.bench.scheduling import throughput
from tests.redis_servers import names

ROUNDS = 5
QUICK_ROUNDS, QUICK_SECONDS = 3, 1.0
ACQUIRE_ROUNDS = 15
PODS = 800


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only the most important figures, within a minute")
    parser.add_argument("--rounds", type=int, help="rounds of each comparison")
    parser.add_argument("--only", choices=(*PARTS, *ALONE), help="one part")
    parser.add_argument("--pods", type=int, default=PODS, help="acquires of one round")
    parser.add_argument("--redis", choices=names(), default=REDIS, help="server of the acquires")
    parser.add_argument("--watched", type=int, default=pods.WATCHED, help="Pods that the controller watches")
    parser.add_argument("--pictures", metavar="RESULTS", type=Path, help="write docs/performance.md from a JSON file")
    parser.add_argument("--before", metavar="REVISION", help="measure the server of another commit, too")
    parser.add_argument(
        "--interpreter",
        metavar="PATH",
        action="append",
        default=[],
        help="measure the server under another Python, too",
    )
    chosen = parser.parse_args(arguments)
    if chosen.quick and (chosen.only or chosen.before or chosen.interpreter):
        parser.error("--quick takes none of --only, --before and --interpreter")
    if chosen.pictures:
        fragments.write(results.read(chosen.pictures))
        scale.write(results.read(chosen.pictures))
        return
    if chosen.quick:
        print("\n".join(quick.measure(chosen.rounds or QUICK_ROUNDS, QUICK_SECONDS)))
        return
    for name, part in (PARTS | ALONE).items():
        if chosen.only == name or (chosen.only is None and name in PARTS):
            print("\n".join(part(chosen)), flush=True)


def _acquires(chosen: argparse.Namespace) -> list[str]:
    with real_redis(chosen.redis) as redis:
        lines, figures = uvloop.run(acquires(redis, chosen.rounds or ACQUIRE_ROUNDS, chosen.pods))
    results.record("acquires", figures)
    return lines


def _controller(chosen: argparse.Namespace) -> list[str]:
    with real_redis() as redis:
        return uvloop.run(pods.measure_watch(redis, chosen.watched, pods.ROUNDS, pods.QUIET_SECONDS))


def _loop(_: argparse.Namespace) -> list[str]:
    lines, figures = loop_stalls.measure()
    results.record("loop", figures)
    return lines


def _count_opcodes(_: argparse.Namespace) -> list[str]:
    lines, figures = review_opcodes.measure()
    results.record("opcodes", figures)
    return lines


def _measure_policies(chosen: argparse.Namespace) -> list[str]:
    lines, figures = policy_changes.measure(chosen.rounds or policy_changes.ROUNDS)
    results.record("policies", figures)
    return lines


def _measure_scheduling(chosen: argparse.Namespace) -> list[str]:
    lines, figures = throughput.measure_sizes(chosen.rounds or ROUNDS)
    results.record("scheduling", figures)
    return lines


def _measure_shares(chosen: argparse.Namespace) -> list[str]:
    lines, figures = shares.measure(chosen.rounds or ROUNDS, chosen.before)
    results.record("shares", figures)
    return lines


def _measure_deployments(chosen: argparse.Namespace) -> list[str]:
    lines, figures = deployments.measure(chosen.rounds or deployments.ROUNDS)
    results.record("deployments", figures)
    return lines


def _starts(chosen: argparse.Namespace) -> list[str]:
    lines, figures = starts.measure(chosen.rounds or starts.ROUNDS, chosen.before, chosen.interpreter)
    results.record("starts", figures)
    return lines


def _releases(chosen: argparse.Namespace) -> list[str]:
    lines, figures = releases.measure_releases(chosen.rounds or releases.ROUNDS, chosen.before)
    results.record("releases", figures)
    return lines


def _measure_waiting(_: argparse.Namespace) -> list[str]:
    lines, figures = waiting.measure()
    results.record("waiting", [figures])
    return lines


def _measure_idle(chosen: argparse.Namespace) -> list[str]:
    lines, figures = idle.measure(chosen.rounds or ROUNDS)
    results.record("idle", figures)
    return lines


def _measure_memory(_: argparse.Namespace) -> list[str]:
    lines, figures = memory.measure()
    results.record("memory", figures)
    return lines


def _measure_scale(_: argparse.Namespace) -> list[str]:
    def on_step(line: str, figures: list[growth.Figures]) -> None:
        print(line, flush=True)
        results.record("scale", figures)

    lines, _ = growth.measure(on_step=on_step)
    return lines[:1]


def _comparison(name: str) -> Callable[[argparse.Namespace], list[str]]:
    return lambda chosen: full.measure(name, chosen.rounds or ROUNDS, chosen.before, chosen.interpreter)


PARTS: dict[str, Callable[[argparse.Namespace], list[str]]] = {
    "opcodes": _count_opcodes,
    "evaluation": lambda chosen: evaluation.measure(chosen.rounds or ACQUIRE_ROUNDS),
    "rules": lambda chosen: pod_rules.measure(chosen.rounds or ACQUIRE_ROUNDS),
    "breaker": lambda chosen: breaker_cost.measure(chosen.rounds or ACQUIRE_ROUNDS),
    "loop": _loop,
    "policies": _measure_policies,
    "acquires": _acquires,
    **{name: _comparison(name) for name in lineup.COMPARISONS},
    "shares": _measure_shares,
    "deployments": _measure_deployments,
    "apiserver": lambda chosen: creation.measure(chosen.rounds or ROUNDS),
    "pods": _controller,
    "releases": _releases,
    "waiting": _measure_waiting,
    "scheduling": _measure_scheduling,
    "starts": _starts,
    "idle": _measure_idle,
    "memory": _measure_memory,
}
ALONE = {"scale": _measure_scale}
"""Parts that run only if they are named: a quarter of an hour, and all of a machine."""
"""Returns the lines of the output, by part."""


if __name__ == "__main__":
    main()
