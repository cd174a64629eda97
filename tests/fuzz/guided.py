"""Runs under coverage guidance: a target for some seconds, what it reached, and the input that it failed with."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.catalogue import load_target
from tests.fuzz.corpus import FOLDER, write_entry
from tests.fuzz.fuzzer import fetch_fuzzer

ROOT = Path(__file__).parents[2]
WORK = ROOT / ".test-results" / "fuzz"
FAILURES = WORK / "failures"
"""The inputs that oracles refused."""
_SIZE_MAX = 8192
_INPUT_SECONDS_MAX = 60
"""For one input: a machine may be busy."""
_MEMORY_MB_MAX = 2048
_ENDING_SECONDS = 1800
"""To start and to end: a process at a low priority may wait long for a processor."""
_TAIL_LINES = 40


class GuidedRun(NamedTuple):
    """What a run did. Coverage is in steps of bytecode of the product."""

    name: str
    executions: int
    seconds: int
    coverage_first: int
    coverage_last: int
    inputs: int
    failure: str
    """The end of the output, and the file of the input; "" if nothing failed."""

    def __str__(self) -> str:
        each = self.executions / max(1, self.seconds)
        grown = f"coverage {self.coverage_first} -> {self.coverage_last}, {self.inputs} inputs"
        state = "FAILED" if self.failure else "clean"
        return f"{self.name:<24} {self.seconds:>6} s {state} {self.executions:>9} executions {each:>7.0f}/s  {grown}"


def run_guided(name: str, seconds: float) -> GuidedRun:
    """Run a target from its corpus and what earlier runs have found."""
    found = WORK / name
    FAILURES.mkdir(parents=True, exist_ok=True)
    for seed in load_target(name).list_seeds():
        write_entry(found, seed)
    options = (
        *(f"-max_total_time={round(seconds)}", f"-max_len={_SIZE_MAX}", f"-timeout={_INPUT_SECONDS_MAX}"),
        *(f"-rss_limit_mb={_MEMORY_MB_MAX}", f"-artifact_prefix={FAILURES}/{name}-", "-print_final_stats=1"),
    )
    (FOLDER / name).mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.fuzz.guided_process", name, *options, found, FOLDER / name]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(fetch_fuzzer())))}
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds + _ENDING_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        output = (error.stdout or b"").decode("utf-8", "replace")
        return read_output(name, f"{output}\nit did not end in time", 1)
    return read_output(name, done.stdout.decode("utf-8", "replace"), done.returncode)


def read_output(name: str, output: str, code: int) -> GuidedRun:
    coverage = [int(text) for text in re.findall(r"^#\d+\s.*\bcov: (\d+)", output, re.MULTILINE)]
    corpus = re.findall(r"\bcorp: (\d+)/", output)
    executions = re.findall(r"stat::number_of_executed_units:\s*(\d+)", output) or re.findall(
        r"^#(\d+)\s", output, re.MULTILINE
    )
    took = re.findall(r"Done \d+ runs in (\d+) second", output)
    return GuidedRun(
        name,
        int(executions[-1]) if executions else 0,
        int(took[-1]) if took else 0,
        coverage[0] if coverage else 0,
        coverage[-1] if coverage else 0,
        int(corpus[-1]) if corpus else 0,
        "\n".join(output.splitlines()[-_TAIL_LINES:]) if code else "",
    )
