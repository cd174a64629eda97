"""A store of an earlier commit, in a process of its own: the tests' steps, run by the code of that commit.

`python earlier_store.py URL` with that commit's tree on the path, tests included. It reads one step a line, and prints
its answer: `plain`, so that names of fields may change.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

CLUSTER = "staged"


def plain(value: Any) -> Any:
    """Return a value as JSON has it, with the fields of structs in their order instead of by their names."""
    match value:
        case Enum():
            return value.value
        case msgspec.Struct():
            fields = [plain(field) for field in msgspec.structs.astuple(value)]
            while fields and fields[-1] is None:  # also those that the earlier commit does not have
                fields.pop()
            return fields
        case dict():
            return [[plain(key), plain(value[key])] for key in sorted(value)]
        case set() | frozenset():
            return sorted(map(plain, value))
        case list() | tuple():
            return [plain(part) for part in value]
    return value


@contextmanager
def earlier_store(tree: Path, url: str) -> Iterator["EarlierStore"]:
    """Run the process on the code of `tree`."""
    with subprocess.Popen(
        [sys.executable, __file__, url],
        cwd=tree,
        env={"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield EarlierStore(process)


class EarlierStore:
    """The store of the process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, example: str, plan: int, now_us: int, step: Sequence[Any]) -> Any:
        """Return the answer to a step; `plan` is its position in `store_plans.PLANS`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([example, plan, now_us, plain(step)]), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())


class _GivenClock:
    us = 0

    def now_us(self) -> int:
        return self.us


class _Runner:
    """Runs steps on the store. The modules are those of the earlier commit, whose names do not change."""

    def __init__(self, url: str) -> None:
        self._steps = import_module("tests.contract.store_steps")
        self._plans = import_module("tests.contract.store_plans").PLANS
        self._plan_of_example = import_module("tests.contract.stores_agree").plan_of_example
        redis_store, ports = import_module("webhook.adapters.redis_store"), import_module("webhook.ports")
        self._outcomes = import_module("webhook.core.breaker.outcome_types")
        self._breaker = import_module("webhook.core.breaker")
        self._clock = _GivenClock()
        self._store = redis_store.RedisStore(
            redis_store.open_transport(url),
            CLUSTER,
            self._clock,
            ports.WatchReports(int, _fail, str),
            deadline_seconds=30,
            time_us=self._clock.now_us,
        )

    async def run(self, example: str, number: int, now_us: int, step: Any) -> Any:
        self._clock.us = now_us
        plan = self._plan_of_example(self._plans[number], example)
        match step:
            case ["tick", plans]:
                policy = [self._plan_of_example(self._plans[each], example) for each in plans]
                return await self._store.tick(policy)
            case ["propose", [state, *fields]]:
                *before, failed, passed, alone = fields
                view = self._breaker.BreakerView(self._breaker.State(state), *before, tuple(failed), passed, alone)
                return await self._store.propose(plan, view)
            case ["record_outcomes", reported]:
                step = ["record_outcomes", [self._outcomes.Outcomes(*fields) for fields in reported]]
            case ["started", reported]:
                step = ["started", [self._outcomes.Start(*fields) for fields in reported]]
            case [("acquire" | "resize") as kind, uid, *costs]:
                step = [kind, uid, *(dict(cost) if isinstance(cost, list) else cost for cost in costs)]
            case [("book" | "observe") as kind, pods]:
                step = [kind, [(uid, dict(cost), *others) for uid, cost, *others in pods]]
        return await self._steps.run_step(self._store, plan, tuple(step), now_us)


def _fail(trouble: str) -> None:
    raise SystemExit(f"the earlier store: {trouble}")


def _main(url: str) -> None:
    with asyncio.Runner() as runner:

        async def start() -> _Runner:
            return _Runner(url)

        steps = runner.run(start())
        for line in sys.stdin:
            answer = runner.run(steps.run(*json.loads(line)))
            sys.stdout.write(f"{json.dumps(plain(answer))}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    _main(sys.argv[1])
