"""Distinguish URLs from paths, and remove secrets from URLs for display."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

from arf_dask.typing import PathLike

SECRET_NAME = re.compile(r"(?i)secret|token|pass|key|credential|connection|sas")  # names of options that hold secrets
SHORTEST_VALUE = 4  # minimum length of hidden query values; hiding shorter ones would garble messages


def is_url(path: PathLike) -> bool:
    """Return whether this is the URL of a remote store; "file://" is a local path.

    >>> is_url("s3://bucket/data"), is_url("data/2024.parquet"), is_url("file:///data")
    (True, False, False)
    """
    return "://" in os.fspath(path) and not os.fspath(path).startswith("file://")


def local_path(path: PathLike) -> str:
    """Return a path as text, without "file://"."""
    return os.fspath(path).removeprefix("file://")


def public_url(url: str) -> str:
    """Return a URL without its password and query, for messages and manifests.

    >>> public_url("s3://key:secret@bucket/data?token=abc")
    's3://key:***@bucket/data'
    """
    parts = urlsplit(url)
    if parts.password is None and (not parts.query or parts.scheme == ""):
        return url
    host = parts.netloc.rpartition("@")[2]
    user = f"{parts.username}:***@" if parts.password is not None else ""
    return urlunsplit((parts.scheme, user + host, parts.path, "", ""))


def without_secrets(text: str, url: str, options: Mapping[str, Any] | None = None) -> str:
    """Return a message without the password and query of a URL, and without the secrets among storage options.

    >>> without_secrets("GET http://host/x?sig=abcdef: refused", "http://host/x?sig=abcdef")
    'GET http://host/x?***: refused'
    """
    parts = urlsplit(url)
    values = [value for _, value in parse_qsl(parts.query) if len(value) >= SHORTEST_VALUE]
    secrets = [*_secret_values({} if options is None else options), parts.password, parts.query, *values]
    forms = {form for secret in secrets if secret for form in (secret, quote(secret, safe=""))}
    for secret in sorted(forms, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _secret_values(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _secret_values(value)
        elif isinstance(value, str) and value and SECRET_NAME.search(str(name)):
            yield value
