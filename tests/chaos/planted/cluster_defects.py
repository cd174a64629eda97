"""Defects of faults of one Redis: a full disk, a node of a Cluster, and a slot that has moved."""

from tests.chaos.planted.defect import Defect, of

_TRANSPORT = "webhook/adapters/redis_store/transport/cluster.py"
_LANES = "webhook/adapters/redis_store/lane_group.py"

DEFECTS = (
    Defect(
        "a write that a full disk refuses is taken for success",
        "full",
        of("charges", "windows"),
        "webhook/adapters/redis_store/lua/50_main.lua",
        "  if not fine then\n    for index in ipairs(results) do",
        "  if not fine and not string.find(module('operations').words_of(fault), 'MISCONF') then\n"
        "    for index in ipairs(results) do",
    ),
    Defect(
        "a full disk is taken for a defect of single operations",
        "full",
        of("failures"),
        "webhook/adapters/redis_store/error_classes.py",
        '    "MISCONF": StoreFault.READONLY,\n',
        "",
    ),
    Defect(
        "a slot that has moved is asked at its former node",
        "moved",
        of("failures", "agreement"),
        _TRANSPORT,
        "                self._owners[slot] = owner\n                self._learn_soon()\n            except AskError",
        "                raise\n            except AskError",
    ),
    Defect(
        "while a node of a Cluster does not answer, those of others wait for it",
        "node",
        of("failures", "windows"),
        _TRANSPORT,
        '        return str(owner) if owner else ""\n',
        '        return ""\n',
    ),
    Defect(
        "the failure of a node of a Cluster makes the whole store unavailable",
        "node",
        of("failures", "windows"),
        _LANES,
        "        lane = self._lanes.get(self._name_of(tag)) or self.get_lane(tag)\n",
        "        lane = next((each for each in self._lanes.values() if each._down or each._late), None)\n"
        "        lane = lane or self.get_lane(tag)\n",
    ),
)
