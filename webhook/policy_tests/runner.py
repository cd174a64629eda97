"""Runner of policy tests: reviews objects and replays sequences, each case with empty counters."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol

from webhook.commands.policy_argument import load_policy
from webhook.commands.review_object import Asker, Evaluator, judge
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document import Purpose
from webhook.core.policy.custom_workloads import list_template_paths
from webhook.core.policy.model import LoadedPolicy
from webhook.errors import UserError
from webhook.interceptor import Interceptor
from webhook.policy_tests.case_files import ReadFiles, find_tests
from webhook.policy_tests.case_objects import CaseObjects
from webhook.policy_tests.comparison import CaseAnswer, FieldDifference, find_differences
from webhook.policy_tests.document import PolicyTest, PolicyTestCase, SequenceStep
from webhook.policy_tests.loading import load_policy_test
from webhook.policy_tests.step_events import build_step_events
from webhook.replay.engine import Replay
from webhook.replay.environment import ReplayEnvironment, enforce_live_limits


class CaseEnvironment(ReplayEnvironment, Protocol):
    """Environment of one case: that of a replay, and the evaluation of reviews."""

    @property
    def interceptor(self) -> Interceptor: ...

    def find_policy(self, policy_hash: str = "") -> CompiledPolicy: ...


Environments = Callable[[LoadedPolicy, Mapping[str, Mapping[str, str]]], CaseEnvironment]
"""Function that makes an environment with a policy, labels of Namespaces, and empty counters."""


class CaseFailure(NamedTuple):
    """An object or a step with an unexpected answer; `message`: that of a denial, "" without a denial."""

    where: str
    differences: tuple[FieldDifference, ...]
    message: str = ""


class CaseResult(NamedTuple):
    """The result of one case; `error`: why it could not be run. An invalid file has one result without a name."""

    file: str
    name: str
    seconds: float
    failures: tuple[CaseFailure, ...] = ()
    error: UserError | None = None

    @property
    def word(self) -> str:
        return "error" if self.error is not None else "failed" if self.failures else "ok"


class CaseRunner:
    """Runs the cases of one test after another. `read` collects the files that they depend on."""

    def __init__(self, environments: Environments, read: ReadFiles) -> None:
        self._environments = environments
        self._read = read
        self._load = cache(self._load_policy)

    def _load_policy(self, path: Path, purpose: Purpose) -> LoadedPolicy:
        self._read.add(path)
        return load_policy(path, purpose)

    def run(self, paths: Sequence[Path], wanted: Callable[[str], bool]) -> Iterator[CaseResult]:
        """Yield the result of each case with a wanted name. UserError: a path cannot be read."""
        for path in paths:
            self._read.add(path)
        for path, raw in find_tests(paths):
            try:
                test = load_policy_test(raw, str(path))
            except UserError as error:
                yield CaseResult(str(path), "", 0.0, error=error)
                continue
            objects = CaseObjects(path, self._read)
            yield from (self._run_case(path, test, case, objects) for case in test.cases if wanted(case.name))

    def _run_case(self, path: Path, test: PolicyTest, case: PolicyTestCase, objects: CaseObjects) -> CaseResult:
        started = time.perf_counter()
        failures: tuple[CaseFailure, ...] = ()
        error = None
        try:
            run_case = self._run_sequence if case.sequence else self._run_objects
            failures = asyncio.run(run_case(path, test, case, objects))
        except UserError as wrong:
            error = wrong
        return CaseResult(str(path), case.name, time.perf_counter() - started, failures, error)

    async def _run_objects(
        self, path: Path, test: PolicyTest, case: PolicyTestCase, objects: CaseObjects
    ) -> tuple[CaseFailure, ...]:
        namespace, labels = case.namespace or test.namespace, {**test.namespace_labels, **case.namespace_labels}
        loaded = self._load(path.parent / test.policy, Purpose.REVIEW)
        objects.templates = list_template_paths(loaded.policy)
        found, known = objects.read_all(case.objects, namespace, labels)
        failures = []
        for subject in found:
            environment = self._environments(loaded, known)
            await enforce_live_limits(environment.find_policy(), environment.store)
            evaluator = Evaluator(environment.interceptor, environment.find_policy)
            judged = await judge(evaluator, subject, Asker(case.user), with_notes=False)
            answer = CaseAnswer(judged.admission)
            if case.expect is not None and (differing := find_differences(case.expect, answer)):
                where = subject.name if subject.file == str(path) else f"{subject.where}: {subject.name}"
                failures.append(CaseFailure(where, tuple(differing), answer.message))
        return tuple(failures)

    async def _run_sequence(
        self, path: Path, test: PolicyTest, case: PolicyTestCase, objects: CaseObjects
    ) -> tuple[CaseFailure, ...]:
        namespace, labels = case.namespace or test.namespace, {**test.namespace_labels, **case.namespace_labels}
        loaded = self._load(path.parent / test.policy, Purpose.REPLAY)
        objects.templates = list_template_paths(loaded.policy)
        replay = Replay(self._environments(loaded, labels), lambda file: self._load(file, Purpose.REPLAY), path.parent)
        failures = []
        for number, step in enumerate(case.sequence, 1):
            subject = None if step.object is None else objects.read_one(step.object, namespace)
            events = build_step_events(step, subject, case.user)
            for index, event in enumerate(events, 1):
                where = f"step {number} at {step.at}" + (f", request {index} of {step.count}" if step.count > 1 else "")
                try:
                    played = await replay.play(event)
                except UserError as error:
                    raise UserError(f"{where}: {error}", error.remedy) from None
                answer = CaseAnswer(played.admission, played.line)
                if failure := _find_failure(step, answer, where):
                    failures.append(failure)
                    break  # the other requests of a step would mostly fail alike
        return tuple(failures)


def _find_failure(step: SequenceStep, answer: CaseAnswer, where: str) -> CaseFailure | None:
    differing = find_differences(step.expect, answer) if step.expect is not None else []
    return CaseFailure(where, tuple(differing), answer.message) if differing else None
