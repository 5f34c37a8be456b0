"""Show the options of `fit` and of sinks in the signatures of the API reference, with their defaults.

These functions take options as `**options` and declare the parameters at runtime (`arf_dask.options.shows_options`);
the reference is made from source code, which does not show them.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

from griffe import Extension, Function, Parameter, ParameterKind, Parameters

DECORATORS = ("shows_options", "shows_fields")


class ShownOptions(Extension):  # type: ignore[misc] # griffe comes with the extra docs, which type checks do without
    """Replaces `**options` by the parameters that a function has at runtime, if its docstring describes them."""

    def on_function(self, *, func: Function, **kwargs: Any) -> None:
        """Change the signature of one function."""
        is_decorated = any(str(decorator.value).startswith(DECORATORS) for decorator in func.decorators)
        if not is_decorated or func.docstring is None or "**options:" in func.docstring.value:
            return
        shown = inspect.signature(_find(func)).parameters.values()
        added = [_keyword(one) for one in shown if one.name not in func.parameters]
        own = [parameter for parameter in func.parameters if parameter.kind is not ParameterKind.var_keyword]
        func.parameters = Parameters(*own, *added)


def _keyword(one: inspect.Parameter) -> Parameter:
    annotation, default = str(one.annotation), repr(one.default)
    return Parameter(one.name, annotation=annotation, default=default, kind=ParameterKind.keyword_only)


def _find(func: Function) -> Any:
    """Return the function at runtime."""
    value = import_module(func.module.path)
    for name in func.path.removeprefix(f"{func.module.path}.").split("."):
        value = getattr(value, name)
    return value
