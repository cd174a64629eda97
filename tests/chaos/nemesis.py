"""The nemesis: begins and ends the faults of a schedule, each in a thread of its own, and records both."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.chaos.effects import BUILDS
from tests.chaos.history import BEGAN, ENDED, FAILED, PlannedFault
from tests.chaos.lab import Lab
from tests.chaos.record import Record

_END_SECONDS = 120.0
"""A part may need so long to start on a busy machine."""
_RETRY_SECONDS = 0.5
_TEXT_MAX = 1000


@dataclass
class Nemesis:
    """`run` returns when the last fault has ended. `errors` are faults that did not end."""

    lab: Lab
    record: Record
    errors: list[str] = field(default_factory=list)

    def run(self, schedule: Sequence[PlannedFault], began: float) -> None:
        """Do everything at its time; `began` is the begin of the run by `time.monotonic`."""
        threads = []
        for fault in sorted(schedule, key=lambda fault: fault.after):
            _sleep_until(began + fault.after)
            thread = threading.Thread(target=self._do, args=(fault, began), name=f"fault {fault.number}", daemon=True)
            thread.start()
            threads.append(thread)
        for thread in threads:
            thread.join(2 * _END_SECONDS)
            if thread.is_alive():
                self.errors.append(f"{thread.name} has not ended")

    def _do(self, fault: PlannedFault, began: float) -> None:
        effect = BUILDS[fault.kind](self.lab, fault)
        self._tell(fault, BEGAN, **fault.details)
        told = dict(fault.details)
        try:
            found = effect.begin()
        except Exception as failure:  # noqa: BLE001  a fault on a part that is down fails in many ways
            told["error"] = f"{type(failure).__name__}: {failure}"[:_TEXT_MAX]
        else:
            told |= found if isinstance(found, Mapping) else {}
            _sleep_until(began + fault.until)
        if effect.heal is not None:
            self._heal(fault, effect.heal)
        self._tell(fault, FAILED if "error" in told else ENDED, **told)

    def _heal(self, fault: PlannedFault, heal: Callable[[], object]) -> None:
        """End a fault. What undoes it may fail while other faults last: try until it does not."""
        deadline = time.monotonic() + _END_SECONDS
        while True:
            try:
                heal()
            except Exception as error:  # noqa: BLE001  as above
                if time.monotonic() > deadline:
                    self.errors.append(f"{fault.kind} of {'>'.join(fault.parts)} does not end: {error}"[:_TEXT_MAX])
                    return
                time.sleep(_RETRY_SECONDS)
            else:
                return

    def _tell(self, fault: PlannedFault, phase: str, **details: object) -> None:
        self.record.add_fault(fault.number, fault.kind, fault.parts, phase, **details)


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))
