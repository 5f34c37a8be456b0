"""Rules for columns that are modelled as one: list them, and count the rows of a frame that break them."""

from __future__ import annotations

import polars as pl

from arf_dask.rules.expressions import write_name
from arf_dask.rules.relations import Relations, Rule
from arf_dask.schema.columns import Schema, Variable
from arf_dask.schema.encoding import column_tokens, encode_states


def together_rules(schema: Schema, relations: Relations) -> list[Rule]:
    """Return one rule per undeclared bundle: synthetic rows hold only combinations that occur in the data."""
    declared_sets = {frozenset(rule.columns) for rule in relations.rules if rule.kind == "together"}
    return [
        Rule(" + ".join(map(write_name, names)), "together", user_names, 1.0, True)
        for names in schema.bundles
        if frozenset(user_names := tuple(dict.fromkeys(map(relations.user_name, names)))) not in declared_sets
    ]


def count_unseen(rule: Rule, frame: pl.DataFrame, schema: Schema, relations: Relations) -> int | None:
    """Count the rows whose combination was not in the training data; None if a column is missing or not bundled."""
    has_rule = [_holds(schema, candidate, rule, relations) for candidate in schema.variables]
    variable_id = has_rule.index(True) if any(has_rule) else None
    if variable_id is None:
        return None
    variable = schema.variables[variable_id]
    member_names = [column.name for column in schema.member_columns(variable)]
    rule_names = [name for name in member_names if variable.is_line or relations.user_name(name) in rule.columns]
    needed_names = relations.needed(rule_names) if relations.names else rule_names
    if not all(name in frame.columns for name in needed_names):
        return None
    needed_rows = frame.select([pl.nth(frame.columns.index(name)) for name in needed_names])
    needed_rows = relations.forward(_with_dtypes(needed_rows, schema, relations), rule_names)
    if variable.is_line:
        return int((encode_states(needed_rows, schema, variable_id)[0] < 0).sum())
    columns = {column.name: column for column in schema.member_columns(variable)}
    row_tokens = pl.DataFrame(
        {str(i): column_tokens(needed_rows[name], columns[name]) for i, name in enumerate(rule_names)}
    )
    known_tokens = pl.DataFrame(
        {str(i): variable.tokens[:, member_names.index(name)] for i, name in enumerate(rule_names)}
    )
    return row_tokens.join(known_tokens.unique(), on=row_tokens.columns, how="anti").height


def _holds(schema: Schema, variable: Variable, rule: Rule, relations: Relations) -> bool:
    return {*rule.columns} <= {relations.user_name(column.name) for column in schema.member_columns(variable)}


def _with_dtypes(rows: pl.DataFrame, schema: Schema, relations: Relations) -> pl.DataFrame:
    """Cast the rows to the dtypes of the table; values that cannot be cast become null."""
    dtypes = relations.dtypes if relations.names else schema.dtypes
    return rows.cast({name: dtypes[name] for name in rows.columns if rows.schema[name] != dtypes[name]}, strict=False)
