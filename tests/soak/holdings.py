"""What a process holds: counts that a leak makes grow, whatever the machine is busy with."""

import asyncio
import gc
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

OWN = ("webhook.", "certs.")


@dataclass(frozen=True)
class Holdings:
    """Counts of this process at one moment, after a collection of garbage."""

    blocks: int
    """Allocated blocks of memory: objects of every kind, also those that the collector does not track."""
    objects: Counter[str]
    """Tracked objects of our own classes."""
    tasks: int
    descriptors: int

    @classmethod
    def take(cls) -> "Holdings":
        gc.collect()
        names = (f"{type(found).__module__}.{type(found).__qualname__}" for found in gc.get_objects())
        objects = Counter(name for name in names if name.startswith(OWN))
        return cls(sys.getallocatedblocks(), objects, len(asyncio.all_tasks()), count_descriptors("self"))

    def find_grown(self, before: "Holdings", most: int) -> dict[str, int]:
        """Return the classes of which there are by more than `most` more objects than before."""
        grown = {name: count - before.objects[name] for name, count in self.objects.items()}
        return {name: more for name, more in grown.items() if more > most}


def count_descriptors(pid: int | str) -> int:
    """Return how many file descriptors a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
