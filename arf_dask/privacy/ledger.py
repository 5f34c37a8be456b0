"""The ledger of a table: what private fits of it have spent, and the cap that they may not exceed together.

A ledger is a JSON file: {"format": "arf_dask privacy ledger", "unit": "row", "cap": {"epsilon": 3.0, "delta": 1e-9},
"fits": [...]}. A fit is entered before it reads rows, so that a fit that fails or is killed has been paid for.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from arf_dask.errors import PrivacyError
from arf_dask.privacy.noise import epsilon_of
from arf_dask.runtime.disk import replace_file
from arf_dask.runtime.locks import LockHeldError, exclusive
from arf_dask.runtime.urls import is_url, local_path, public_url
from arf_dask.storage.stores import open_store, output_errors, write_file
from arf_dask.typing import PathLike

FORMAT = "arf_dask privacy ledger"
TOLERANCE = 1e-6  # relative error of sums of budgets
HAND = "Restore it, or give another path."


def enter_fit(path: PathLike, entry: Mapping[str, Any], storage_options: Mapping[str, Any] | None) -> None:
    """Enter a fit into the ledger at a path or URL; a new ledger is created.

    Args:
        path: of the ledger.
        entry: epsilon, delta, level_delta, rho, unit and max_rows_per_unit of the fit.
        storage_options: for a URL.

    Raises:
        PrivacyError: if the cap of the ledger would be exceeded, or it is damaged, in use, or of another unit.
    """
    text = local_path(path)
    lock = nullcontext() if is_url(text) else exclusive(Path(f"{text}.lock"))
    try:
        with output_errors(public_url(text)), lock:
            ledger = _read(text, storage_options)
            ledger["unit"] = entry["unit"] if not ledger["fits"] and ledger["unit"] is None else ledger["unit"]
            _check(ledger, entry, public_url(text))
            now = datetime.now(UTC).isoformat(timespec="seconds")
            ledger["fits"].append({"id": uuid.uuid4().hex, "time": now, **entry})
            _write(text, json.dumps(ledger, indent=1).encode(), storage_options)
    except LockHeldError as error:
        raise PrivacyError(f"privacy_ledger {public_url(text)!r}: {error}. Fit again once it has ended.") from error


def spent_epsilon(fits: list[Mapping[str, Any]], delta: float) -> float:
    """Return the epsilon that some fits of the same table have spent together, at `delta`."""
    rho = sum(float(fit["rho"]) for fit in fits)
    left = delta - sum(float(fit["level_delta"]) for fit in fits)
    return float("inf") if left <= 0 else epsilon_of(rho, left)


def _check(ledger: Mapping[str, Any], entry: Mapping[str, Any], path: str) -> None:
    if ledger["unit"] != entry["unit"]:
        raise PrivacyError(
            f"privacy_ledger {path!r}: its fits protect the unit {ledger['unit']!r}, and this one {entry['unit']!r}. "
            "Costs of different units do not add up: use a ledger per unit."
        )
    cap = ledger["cap"]
    if cap is None:
        return
    total = spent_epsilon([*ledger["fits"], entry], float(cap["delta"]))
    if total > float(cap["epsilon"]) * (1 + TOLERANCE):
        before = spent_epsilon(ledger["fits"], float(cap["delta"])) if ledger["fits"] else 0.0
        raise PrivacyError(
            f"privacy_ledger {path!r}: with this fit, epsilon would be {total:.4g} at delta {cap['delta']:g}, and the "
            f"cap is {cap['epsilon']:g}. {before:.4g} is spent. Give a smaller epsilon, or raise the cap."
        )


def _read(text: str, storage_options: Mapping[str, Any] | None) -> dict[str, Any]:
    try:
        if is_url(text):
            folder, _, name = text.rpartition("/")
            store = open_store(folder, storage_options)
            if name not in store.names():
                return _new()
            with store.open(name) as file:
                content = file.read()
        elif not os.path.lexists(text):
            return _new()
        else:
            content = Path(text).read_bytes()
        ledger = json.loads(content)
        if ledger["format"] != FORMAT or not isinstance(ledger["fits"], list):
            raise ValueError("it is not a ledger")
        cap, numbers = ledger["cap"], ("rho", "level_delta")
        if cap is not None and not (float(cap["epsilon"]) > 0 and 0 < float(cap["delta"]) < 1):
            raise ValueError("its cap is not {epsilon, delta}")
        if any(not 0 <= float(fit[name]) < float("inf") for fit in ledger["fits"] for name in numbers):
            raise ValueError("a fit without a valid cost")
        return dict(ledger)
    except (ValueError, KeyError, TypeError) as error:
        raise PrivacyError(f"privacy_ledger {public_url(text)!r}: damaged ({error}). {HAND}") from None


def _new() -> dict[str, Any]:
    return {"format": FORMAT, "unit": None, "cap": None, "fits": []}


def _write(text: str, content: bytes, storage_options: Mapping[str, Any] | None) -> None:
    if is_url(text):
        write_file(text, content, storage_options)
        return
    draft = Path(f"{text}.{uuid.uuid4().hex}.tmp")
    try:
        draft.write_bytes(content)
        replace_file(draft, Path(text).resolve())
    finally:
        draft.unlink(missing_ok=True)
