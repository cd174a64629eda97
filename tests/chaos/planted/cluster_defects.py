"""Defects of faults of one Redis: a full disk, a node of a Cluster, and a slot that has moved."""

from tests.chaos.planted.defect import Defect, of

_TRANSPORT = "webhook/adapters/redis_store/transport/cluster.py"

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
)
