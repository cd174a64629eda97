"""Names of modules, folders and public classes consist of words that stand outside the code.

A name may use the words of the API of Kubernetes, of the commands of Redis, of TLS, tokens and HTTP, as the libraries
that speak them name them, and of `docs/concepts.md`. Other words, plain English, are listed in `glossary.txt`.
"""

import ast
import asyncio
import collections.abc
import http
import re
import ssl
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import aiohttp
import jwt
import kubernetes_asyncio
import pytest
from aiohttp import hdrs
from cryptography import x509
from cryptography.x509 import oid
from redis.commands import core, sentinel

from tests.architecture.sources import ROOT, SOURCES, parsed

PLAIN_WORDS = frozenset(Path(__file__).with_name("glossary.txt").read_text().split())
PLAIN_WORDS_MAX = 360
"""A new name takes a word of the concepts or of a protocol before it takes a new one."""


def singular(word: str) -> str:
    if word.endswith("ies"):
        return f"{word[:-3]}y"
    if word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def words(names: Iterable[str]) -> set[str]:
    """Return the words of names in any spelling: snake_case, CamelCase, kebab-case or prose."""
    parts = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
    return {singular(word.lower()) for word in {word for name in names for word in parts.findall(name)}}


def words_of_kubernetes() -> set[str]:
    """Return the words of the kinds and fields of the API."""
    models = sorted((Path(kubernetes_asyncio.__path__[0]) / "client/models").glob("*.py"))
    fields = (model.read_text().partition("attribute_map = {")[2].partition("}")[0] for model in models)
    return words((*(model.stem for model in models), *fields))


def words_of_redis() -> set[str]:
    classes = [value for module in (core, sentinel) for value in vars(module).values() if isinstance(value, type)]
    return words(name for commands in classes for name in vars(commands))


def words_of_tls() -> set[str]:
    places = (ssl, ssl.SSLContext, ssl.SSLSocket, jwt, x509, oid, x509.Certificate, x509.CertificateBuilder)
    return words(name for place in places for name in dir(place))


def words_of_http() -> set[str]:
    return words((*(status.phrase for status in http.HTTPStatus), *dir(hdrs), *dir(aiohttp)))


def words_of_python() -> set[str]:
    return words((*dir(asyncio), *dir(collections.abc)))


def words_of_the_concepts() -> set[str]:
    return words([(ROOT / "docs/concepts.md").read_text()])


@cache
def outside() -> frozenset[str]:
    """Return the words that the code may use without a line in the glossary."""
    return frozenset().union(
        words_of_kubernetes(),
        words_of_redis(),
        words_of_tls(),
        words_of_http(),
        words_of_python(),
        words_of_the_concepts(),
    )


def names() -> Iterator[str]:
    """Yield the names of modules, folders and public classes."""
    for path in SOURCES:
        yield from path.relative_to(ROOT).with_suffix("").parts
        classes = [node.name for node in parsed(path).body if isinstance(node, ast.ClassDef)]
        yield from (name for name in classes if not name.startswith("_"))


@cache
def used() -> frozenset[str]:
    return frozenset(words(names()))


def test_names_are_words_from_outside_the_code() -> None:
    """Choose another name before you add a word to the glossary."""
    assert sorted(used() - outside() - PLAIN_WORDS) == []


def test_the_glossary_adds_only_plain_words_that_are_used_and_stand_nowhere_else() -> None:
    assert sorted(PLAIN_WORDS - used()) == []
    assert sorted(PLAIN_WORDS & outside()) == []
    assert len(PLAIN_WORDS) <= PLAIN_WORDS_MAX


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("queue_index", {"queue", "index"}),
        ("V1PodSpecs", {"v", "1", "pod", "spec"}),
        ("JWKSRefresher", {"jwk", "refresher"}),
        ("policies of classes, status and chassis", {"policy", "of", "class", "status", "and", "chassis"}),
    ],
)
def test_words_of_a_name(name: str, expected: set[str]) -> None:
    assert words([name]) == expected


@pytest.mark.parametrize("word", ["pod", "toleration", "sentinel", "handshake", "certificate", "header", "breaker"])
def test_a_term_of_a_protocol_or_concept_stands_outside(word: str) -> None:
    assert word in outside()
