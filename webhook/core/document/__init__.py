"""The policy document: bytes in, frozen types or every mistake with line, column and remedy out."""

from webhook.core.document.loading import Loaded, load
from webhook.core.document.problems import DocumentError, Problem
from webhook.core.document.rendering import render
from webhook.core.document.schema import written as schema
from webhook.core.document.support import Purpose

__all__ = ["DocumentError", "Loaded", "Problem", "Purpose", "load", "render", "schema"]
