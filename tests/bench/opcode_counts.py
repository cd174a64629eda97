"""Opcodes that a call executes, counted in this process: they do not depend on how busy the machine is."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def count_opcodes(work: Callable[[], Any]) -> tuple[int, Any]:
    """Return the opcodes of Python that a call executes, and its result."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()  # a collection may run the finalizers of what others have left
    sys.settrace(trace)
    try:
        result = work()
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
    return count, result
