"""YAML with the values that kubectl 1.36 sends for it: its own answers, which a test of the cluster tier compares."""

from typing import Any

REFUSED: Any = object()

SCALARS: tuple[tuple[str, Any, Any], ...] = (
    ("~", None, REFUSED),
    ("null", None, REFUSED),
    ("NULL", None, REFUSED),
    ("nUll", "nUll", "nUll"),
    ("y", True, "true"),
    ("Y", True, "true"),
    ("yes", True, "true"),
    ("YES", True, "true"),
    ("n", False, "false"),
    ("No", False, "false"),
    ("on", True, "true"),
    ("ON", True, "true"),
    ("oN", "oN", "oN"),
    ("off", False, "false"),
    ("true", True, "true"),
    ("True", True, "true"),
    ("TRUE", True, "true"),
    ("tRUE", "tRUE", "tRUE"),
    ("false", False, "false"),
    ("=", "=", "="),
    ("<<", "<<", REFUSED),
    ("<<<", "<<<", "<<<"),
    (".inf", REFUSED, ".inf"),
    ("+.Inf", REFUSED, ".inf"),
    ("-.INF", REFUSED, "-.inf"),
    (".NaN", REFUSED, ".nan"),
    (".nan", REFUSED, ".nan"),
    ("inf", "inf", "inf"),
    ("NaN", "NaN", "NaN"),
    ("0", 0, "0"),
    ("00", 0, "0"),
    ("0777", 511, "511"),
    ("-0777", -511, "-511"),
    ("0o17", 15, "15"),
    ("0O7", 7, "7"),
    ("0o8", "0o8", "0o8"),
    ("08", 8, "8"),
    ("09.5", 9.5, "9.5"),
    ("0x1F", 31, "31"),
    ("-0X1f", -31, "-31"),
    ("0x", "0x", "0x"),
    ("0x_1", 1, "1"),
    ("0b11", 3, "3"),
    ("+0B1", 1, "1"),
    ("0b12", "0b12", "0b12"),
    ("0b-11", -3, "-3"),
    ("-0b-1", "-0b-1", "-0b-1"),
    ("-0b11", -3, "-3"),
    ("1_000", 1000, "1000"),
    ("1__0", 10, "10"),
    ("0_7", 7, "7"),
    ("_1", "_1", "_1"),
    ("1_e3", 1000, "1000"),
    ("+1", 1, "1"),
    ("-1", -1, "-1"),
    ("-0", 0, "0"),
    ("-0.0", 0, "-0"),
    ("+", "+", "+"),
    ("-1-", "-1-", "-1-"),
    ("1e3", 1000, "1000"),
    ("1E3", 1000, "1000"),
    ("-1e3", -1000, "-1000"),
    ("1.5e3", 1500, "1500"),
    ("1.0e+3", 1000, "1000"),
    ("1e-3", 0.001, "0.001"),
    ("012e3", 12000, "12000"),
    ("1e21", 1e21, "1e+21"),
    ("1e20", 1e20, "1e+20"),
    ("1e18", 1000000000000000000, "1e+18"),
    ("1e-7", 1e-07, "1e-07"),
    ("5.", 5, "5"),
    (".5", 0.5, "0.5"),
    ("+.5", 0.5, "0.5"),
    (".5e3", 500, "500"),
    (".5_0", 0.5, "0.5"),
    (".5e1_0", 5000000000, "5e+09"),
    ("._5", "._5", "._5"),
    ("1_0.5", 10.5, "10.5"),
    (".", ".", "."),
    ("..", "..", ".."),
    (".e3", ".e3", ".e3"),
    ("5e", "5e", "5e"),
    ("1.2.3", "1.2.3", "1.2.3"),
    ("0.1", 0.1, "0.1"),
    ("1.0", 1, "1"),
    ("1.10", 1.1, "1.1"),
    ("1e6", 1000000, "1e+06"),
    ("1234567.0", 1234567, "1.234567e+06"),
    ("123456.7", 123456.7, "123456.7"),
    ("100000.0", 100000, "100000"),
    ("16777217.0", 16777217, "1.6777216e+07"),
    ("3.5e38", 3.5e38, ".inf"),
    ("1e-46", 1e-46, "0"),
    ("0.00001", 1e-05, "1e-05"),
    ("1e400", "1e400", "1e400"),
    (".5e400", ".5e400", ".5e400"),
    ("9223372036854775807", 9223372036854775807, "9223372036854775807"),
    ("9223372036854775808", 9.223372036854776e18, REFUSED),
    ("-9223372036854775808", -9223372036854775808, "-9223372036854775808"),
    ("-9223372036854775809", -9.223372036854776e18, "-9.223372e+18"),
    ("18446744073709551615", 1.8446744073709552e19, REFUSED),
    ("+18446744073709551615", 1.8446744073709552e19, "1.8446744e+19"),
    ("18446744073709551616", 1.8446744073709552e19, "1.8446744e+19"),
    ("0xffffffffffffffff", 1.8446744073709552e19, REFUSED),
    ("0x1ffffffffffffffff", "0x1ffffffffffffffff", "0x1ffffffffffffffff"),
    ("123456789012345678901234567890", 1.2345678901234568e29, "1.2345679e+29"),
    ("1234567890123456789.0", 1234567890123456800, "1.234568e+18"),
    ("0x1p3", "0x1p3", "0x1p3"),
    ("12:30", "12:30", "12:30"),
    ("22:22", "22:22", "22:22"),
    ("190:20:30", "190:20:30", "190:20:30"),
    ("1:2.5", "1:2.5", "1:2.5"),
    ("2026-11-30", "2026-11-30", "2026-11-30"),
    ("2026-1-3", "2026-1-3", "2026-1-3"),
    ("2001-12-14t21:59:43.10-05:00", "2001-12-14t21:59:43.10-05:00", "2001-12-14t21:59:43.10-05:00"),
    ("10m", "10m", "10m"),
    ("1Gi", "1Gi", "1Gi"),
    ("1d", "1d", "1d"),
)
"""Unquoted scalars, with the value, and with the key of a mapping, that kubectl sends."""

DOCUMENTS: dict[str, Any] = {
    "x: &x {b: 1}\nd: {<<: *x, d: 2}": {"x": {"b": 1}, "d": {"b": 1, "d": 2}},
    "x: &x {b: 1}\nd: {b: 2, <<: *x}": {"x": {"b": 1}, "d": {"b": 1}},
    "x: &x {b: 1, c: 1}\nd: &d {b: 2, d: 2}\ne: {b: 9, <<: [*d, *x], d: 9}": {
        "x": {"b": 1, "c": 1},
        "d": {"b": 2, "d": 2},
        "e": {"b": 2, "c": 1, "d": 9},
    },
    "x: {'<<': 1, on: 1, 'on': 2}": {"x": {"<<": 1, "true": 1, "on": 2}},
    "x: !!str 5": {"x": "5"},
    "x: !!int '5'": {"x": 5},
    "x: [! 5, ! '5', ! y]": {"x": ["5", "5", "y"]},
    "x: !!float 1": {"x": 1},
    "x: !!bool yes": {"x": True},
    "x: !!null ''": {"x": None},
    "x: !!binary aGVsbG8=": {"x": "hello"},
    "x: !!timestamp 2026-11-30": {"x": "2026-11-30"},
    "x: !own 5": {"x": "5"},
    "x: !!set {b, c}": {"x": {"b": None, "c": None}},
    "x: !own [b: 1]": {"x": [{"b": 1}]},
    "x: !!int x": REFUSED,
    "x: !!null x": REFUSED,
    "x: !!binary x": REFUSED,
    "<<: 1": REFUSED,
    "<<: [1]": REFUSED,
    "x: &x {<<: *x}": REFUSED,
    "x: &x [*x]": REFUSED,
    "? [x]\n: 1": REFUSED,
    "x: [&x ! 5, *x, &y\n ! y]": {"x": ["5", "5", "y"]},
    "x: a\t# c": {"x": "a"},
    "x:\ta\t": {"x": "a"},
    "x: 'a'\t# c\nz: \"b\"\t": {"x": "a", "z": "b"},
    "x:\t# c\n  a: 1\n  b:\t2": {"x": {"a": 1, "b": 2}},
    "x: {a: 1,\tb: [1,\t2]\t}": {"x": {"a": 1, "b": [1, 2]}},
    "x: {\n\ta: 1\n\t}": REFUSED,
    "x: {\n  a:\t1\n \t}": {"x": {"a": 1}},
    "x:\n-\ta": REFUSED,
    "x: |+\n  a\n\n": {"x": "a\n\n"},
    "x: |\n  a": {"x": "a\n"},
    "x:\n  a: 1\n  \t# c\n  b: 1": REFUSED,
    "x: a\n\t\nz: b": REFUSED,
    "x: |\t# c\n  a\tb\t": {"x": "a\tb\t\n"},
    "x: a\n  \tb": {"x": "a b"},
    "x:\n\ta: 1": REFUSED,
    "x:\n- a\n\t- b": REFUSED,
    "x: '\ufeffa'\nz: |\n  \ufeffa": {"x": "\ufeffa", "z": "\ufeffa\n"},
}
"""Fields of an object, with what kubectl sends."""

NULLS = """\
apiVersion: v1
kind: Pod
metadata:
  name: p
  generateName:
  labels: {app: web, version: }
  annotations: {a: }
  finalizers:
spec:
  nodeSelector: {a: }
  priority:
  hostNetwork:
  overhead: {cpu: }
  runtimeClassName:
  tolerations: [{key: a, operator: Exists, value: , tolerationSeconds: }]
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms: [null, {matchExpressions: [{key: a, operator: In, values: [null, b]}], matchFields: }]
    podAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: a
        namespaces: [null]
        matchLabelKeys: [null]
        mismatchLabelKeys: [null]
        labelSelector: {matchLabels: {a: }, matchExpressions: }
        namespaceSelector:
    podAntiAffinity:
  containers:
  - {name: c, image: i, args: [null, a], command: [null], resources: {requests: {cpu: , memory: 1Gi}, limits: {cpu: }}}
  - {name: d, image: i, args: , resources: {requests: , limits: }}
  initContainers:
status:
"""
DECODED_NULLS: Any = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "labels": {"app": "web", "version": ""}, "annotations": {"a": ""}},
    "spec": {
        "nodeSelector": {"a": ""},
        "overhead": {"cpu": "0"},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {},
                        {"matchExpressions": [{"key": "a", "operator": "In", "values": ["", "b"]}]},
                    ]
                }
            },
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "topologyKey": "a",
                        "namespaces": [""],
                        "matchLabelKeys": [""],
                        "mismatchLabelKeys": [""],
                        "labelSelector": {"matchLabels": {"a": ""}},
                    }
                ]
            },
        },
        "containers": [
            {
                "name": "c",
                "image": "i",
                "args": ["", "a"],
                "command": [""],
                "resources": {"requests": {"cpu": "0", "memory": "1Gi"}, "limits": {"cpu": "0"}},
            },
            {"name": "d", "image": "i", "resources": {}},
        ],
    },
}
"""A Pod with nulls, and without them, as the API server's types decode it."""
