"""The output of a command: results as text or JSON, warnings, errors and the exit code."""

from __future__ import annotations

import json
import re
import sys
import traceback
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import click
import numpy as np

from arf_dask.errors import ArfError, KeyColumnWarning, ReleaseWarning, RuleWarning

FAILED, INTERRUPTED = 1, 130  # exit codes
# An argument of Python with the option of the command line beside it: `mode="resume" (--mode resume)`.
BOTH = re.compile(
    r"[a-z_]+=(\{[^{}]*\}|\[[^\[\]]*\]|\"[^\"]*\"|True|False)(?:, or | \()(--[a-z-]+[^()]*?)(?:\)|(?=[.,;]|$))"
)
ARGUMENT = re.compile(r"\b([a-z_]+)=(True|\"[a-z0-9_]+\"|'[a-z0-9_]+'|[0-9.]*[0-9])(?![\w\"'])")


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
            code = _failure(error, arguments, self._options_of(arguments))
        sys.exit(code if isinstance(code, int) else 0)

    def _options_of(self, arguments: Sequence[str]) -> set[str]:
        """Return the options of the command that the arguments name."""
        command = next((self.commands[argument] for argument in arguments if argument in self.commands), self)
        return {name for parameter in command.params for name in parameter.opts}


def shell_words(text: str, names: Collection[str]) -> str:
    """Return a message with options of the command line in place of arguments of Python.

    Args:
        text: the message.
        names: the options of the command, such as "--mode".

    >>> shell_words('Say mode="resume", or allow_copies=True.', ["--mode", "--allow-copies"])
    'Say --mode resume, or --allow-copies.'
    >>> shell_words('say read_options={"separator": ";"}, or --separator ";".', ["--separator"])
    'say --separator ";".'
    """
    text = BOTH.sub(r"\2", text)

    def option(found: re.Match[str]) -> str:
        name, value = f"--{found[1].replace('_', '-')}", found[2].strip("\"'")
        if name not in names:
            return found[0]
        return name if value == "True" else f"{name} {value}"

    return ARGUMENT.sub(option, text)


def _failure(error: Exception, arguments: Sequence[str], names: Collection[str]) -> int:
    if "--debug" in arguments:
        traceback.print_exception(error)
    text = shell_words(" ".join(str(error).split()), names)
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
