"""The output of a command: results as text or JSON, warnings, errors and the exit code."""

from __future__ import annotations

import json
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import click
import numpy as np

from arf_dask.errors import ArfError, KeyColumnWarning, ReleaseWarning, RuleWarning

FAILED, INTERRUPTED = 1, 130  # exit codes


class Commands(click.Group):
    """The command group, with exit codes that scripts can rely on."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> NoReturn:
        """Run a command and exit."""
        arguments = list(sys.argv[1:] if args is None else args)
        try:
            code = super().main(arguments, *rest, **{**options, "standalone_mode": False})
        except click.exceptions.Exit as end:
            code = end.exit_code
        except (click.Abort, KeyboardInterrupt):
            click.echo("interrupted", err=True)
            code = INTERRUPTED
        except click.ClickException as error:
            if "--json" in arguments:
                print_json({"error": error.format_message(), "kind": type(error).__name__})
            else:
                error.show()
            code = error.exit_code
        except BrokenPipeError:
            sys.stdout = None  # the pipe is closed: flushing would raise again
            code = FAILED
        except Exception as error:
            code = _failure(error, arguments)
        sys.exit(code if isinstance(code, int) else 0)


def _failure(error: Exception, arguments: Sequence[str]) -> int:
    if "--debug" in arguments:
        traceback.print_exception(error)
    text = " ".join(str(error).split())
    if not isinstance(error, ArfError):
        text = f"{type(error).__name__}: {text} (unexpected; --debug shows where)"
    if "--json" in arguments:
        print_json({"error": text, "kind": type(error).__name__})
    else:
        click.echo(f"error: {text}", err=True)
    return FAILED


@contextmanager
def reported(options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a dictionary for results; on exit, print it as JSON, or its summary and the warnings as text."""
    result: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", KeyColumnWarning)
        warnings.simplefilter("always", RuleWarning)
        warnings.simplefilter("always", ReleaseWarning)
        yield result
    messages = [_message(warning.message) for warning in caught]
    summary = result.pop("summary", "")
    if options["as_json"]:
        print_json({**result, "warnings": messages})
        return
    if options["quiet"]:
        return
    for message in messages:
        click.echo(f"warning: {message}", err=True)
    # The summary must not be mixed with rows on stdout.
    click.echo(summary, err=options.get("to") == "-")


def _message(warning: Warning | str) -> str:
    """Return the message of a warning, with the names of command-line options."""
    return warning.text(command_line=True) if isinstance(warning, KeyColumnWarning) else str(warning)


def print_json(result: dict[str, Any]) -> None:
    """Print one JSON object on stdout."""
    click.echo(json.dumps(result, default=_plain, allow_nan=False))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)
