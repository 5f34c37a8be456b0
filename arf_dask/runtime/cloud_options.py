"""Translate storage options between the names of fsspec and those of object_store.

Callers may use either: the names of fsspec's packages ("key", "secret", "endpoint_url"; what pandas and Dask take) or
those of Rust's object_store ("aws_access_key_id", ...; what Polars and delta-rs take). Each reader and writer gets its
own. Options of Polars itself (retries and rates) are numbers; all others are text for Polars.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from arf_dask.errors import MissingExtraError, OptionError, missing_extra
from arf_dask.runtime.urls import public_url

# fsspec's name, object_store's name; by scheme.
_S3 = {
    "key": "aws_access_key_id",
    "secret": "aws_secret_access_key",
    "token": "aws_session_token",
    "endpoint_url": "aws_endpoint_url",
    "region_name": "aws_region",
    "anon": "aws_skip_signature",
}
_GCS = {"token": "google_service_account"}
_AZURE = {
    "account_name": "azure_storage_account_name",
    "account_key": "azure_storage_account_key",
    "sas_token": "azure_storage_sas_token",
    "tenant_id": "azure_storage_tenant_id",
    "client_id": "azure_storage_client_id",
    "client_secret": "azure_storage_client_secret",
}
NAMES = {"s3": _S3, "s3a": _S3, "gs": _GCS, "gcs": _GCS, "az": _AZURE, "abfs": _AZURE, "abfss": _AZURE}
REGIONS = ("aws_region", "aws_default_region", "region", "default_region")
CLIENT_NAMES = ("endpoint_url", "region_name")  # which s3fs takes inside client_kwargs
EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
EXTRAS |= dict.fromkeys(("az", "abfs", "abfss"), "azure")  # extras of this package, by scheme
_RATES = (f"rate_{what}_{limit}" for what in ("read", "write") for limit in ("init", "floor", "ceiling"))
_RETRIES = ("max_retries", "retry_timeout_ms", "retry_init_backoff_ms", "retry_max_backoff_ms")
POLARS_NUMBERS: dict[str, type[int] | type[float]] = dict.fromkeys(("file_cache_ttl", *_RETRIES, *_RATES), int)
POLARS_NUMBERS["retry_base_multiplier"] = float


def object_store_options(url: str, options: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the options as object_store and delta-rs name them, all as text.

    >>> object_store_options("s3://b", {"key": "me", "client_kwargs": {"endpoint_url": "http://localhost:5000"}})
    {'aws_access_key_id': 'me', 'aws_endpoint_url': 'http://localhost:5000', 'aws_allow_http': 'true'}
    """
    known_names = _known_names(url)
    translated_options = {known_names.get(name, name.lower()): _text(value) for name, value in _flat(options)}
    if translated_options.get("aws_endpoint_url", "").startswith("http://"):
        translated_options.setdefault("aws_allow_http", "true")
    return translated_options


def polars_options(url: str, options: Mapping[str, Any] | None) -> dict[str, str | float]:
    """Return the options as Polars takes them: those of object_store as text, its own as numbers.

    >>> polars_options("s3://b", {"key": "me", "max_retries": "0"})
    {'aws_access_key_id': 'me', 'max_retries': 0}

    Raises:
        OptionError: An option of Polars itself is no number.
    """
    store_options = object_store_options(url, options)
    has_region = any(name in store_options or name.upper() in os.environ for name in REGIONS)
    if "aws_endpoint_url" in store_options and not has_region:
        store_options["aws_region"] = "us-east-1"  # or Polars would warn, and ask Amazon for the region of the bucket
    return {name: _polars_value(name, value) for name, value in store_options.items()}


def missing_package(url: str, error: Exception) -> MissingExtraError | None:
    """Return the error for a URL whose fsspec package is not installed, naming our extra; None for other problems.

    Args:
        url: The URL that fsspec could not open.
        error: What fsspec raised: an ImportError, or a ValueError for schemes that it knows from their package alone.
    """
    extra = EXTRAS.get(url.partition("://")[0])
    if extra is not None and (isinstance(error, ImportError) or "Protocol not known" in str(error)):
        return missing_extra(public_url(url), extra)
    if isinstance(error, ImportError):
        return MissingExtraError(f"{public_url(url)}: {error}. Install the package it names, here and on all workers.")
    return None


def fsspec_options(url: str, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the options as the fsspec package of a URL names them.

    >>> fsspec_options("s3://b", {"AWS_ACCESS_KEY_ID": "me", "aws_endpoint_url": "http://localhost:5000"})
    {'key': 'me', 'endpoint_url': 'http://localhost:5000'}
    >>> fsspec_options("s3://b", {"key": "me", "max_retries": 0})
    {'key': 'me'}
    """
    fsspec_names = {store_name: short for short, store_name in _known_names(url).items()}
    translated_options: dict[str, Any] = {}
    for name, value in dict(options or {}).items():
        short = fsspec_names.get(name.lower())
        if short == "region_name":
            translated_options["client_kwargs"] = {**translated_options.get("client_kwargs", {}), "region_name": value}
        elif short is not None:
            translated_options[short] = value
        elif not _is_foreign(url, name.lower()):
            translated_options[name] = (
                {**translated_options.get(name, {}), **value} if isinstance(value, Mapping) else value
            )
    return translated_options


def _is_foreign(url: str, name: str) -> bool:
    """Return whether an option is one of object_store or Polars, which fsspec packages do not know."""
    return name.startswith(("aws_", "google_", "azure_")) or (bool(_known_names(url)) and name in POLARS_NUMBERS)


def _polars_value(name: str, text: str) -> str | float:
    if name not in POLARS_NUMBERS:
        return text
    try:
        value = POLARS_NUMBERS[name](text)
    except ValueError:
        value = -1
    if value < 0:
        kind = "a whole number" if POLARS_NUMBERS[name] is int else "a number"
        raise OptionError(f"storage_options: {name} is {text!r}. Give {kind}, zero or more.")
    return value


def _known_names(url: str) -> Mapping[str, str]:
    return NAMES.get(url.partition("://")[0], {})


def _flat(options: Mapping[str, Any] | None) -> Iterator[tuple[str, Any]]:
    """Yield names and values, with the entries of s3fs' `client_kwargs` at the top level."""
    for name, value in dict(options or {}).items():
        if isinstance(value, Mapping):
            yield from ((inner, one) for inner, one in value.items() if inner in CLIENT_NAMES)
        elif value is not None:
            yield name, value


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
