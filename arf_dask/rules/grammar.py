"""The grammar of rules, parsed without `eval`.

    rule        = expression ("==" | "!=" | "<=" | "<" | ">=" | ">") expression
    expression  = term (("+" | "-") term)*
    term        = factor (("*" | "/" | "//" | "%") factor)*
    factor      = "-" factor | number | text | column | function "(" expression ("," expression)* ")"
                | "(" expression ")"

A column is a plain identifier, or any name in backticks (a backtick inside is doubled). Texts are in single or double
quotes, with quotes and backslashes inside escaped by a backslash. `functions.FUNCTIONS` lists the functions.
"""

from __future__ import annotations

import math
import re
from difflib import get_close_matches
from typing import NamedTuple

from arf_dask.errors import OptionError
from arf_dask.rules.expressions import COMPARISONS, Call, Comparison, Constant, Name, Node, Operation
from arf_dask.rules.functions import FUNCTIONS

MOST_CHARACTERS = 10_000
LARGEST_INTEGER = 2.0**63  # larger integers are read as floats
MOST_SIGNS = 200  # maximum number of signs, brackets included
DEEPEST = 50  # maximum nesting depth of brackets
TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)
    | (?P<column>`(?:[^`]|``)+`)
    | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<word>[^\W\d]\w*)
    | (?P<sign>==|!=|<=|>=|//|[<>+\-*/%(),])
    )""",
    re.VERBOSE,
)


class Token(NamedTuple):
    """A token of a rule."""

    kind: str  # number, column, text, word or sign; "end" after the last token
    text: str
    place: int  # position of its first character


def parse_rule(text: str) -> Comparison:
    """Parse a rule.

    >>> str(parse_rule("total==price*(1-discount)"))
    'total == price * (1 - discount)'
    """
    reader = _Reader(text)
    left = reader.expression()
    sign = reader.take()
    if sign.text not in COMPARISONS or sign.kind != "sign":
        raise reader.error(sign, "a comparison (==, !=, <=, <, >=, >)")
    rule = Comparison(left, sign.text, reader.expression())
    reader.end()
    if not rule.columns:
        raise OptionError(f"rule {text!r}: names no column. Say how columns belong together.")
    return rule


def parse_expression(text: str) -> Node:
    """Parse an expression."""
    reader = _Reader(text)
    node = reader.expression()
    reader.end()
    return node


def _tokens(text: str) -> list[Token]:
    tokens, position = [], 0
    while position < len(text.rstrip()):
        match = TOKEN.match(text, position)
        if match is None:
            error_at = position + len(text[position:]) - len(text[position:].lstrip())
            hint = " Compare with ==." if text[error_at] == "=" else ""
            raise OptionError(
                f"rule {text!r}: cannot read {text[error_at : error_at + 10]!r} (character {error_at + 1}).{hint}"
            )
        kind = str(match.lastgroup)
        tokens.append(Token(kind, match.group(kind), match.start(kind)))
        position = match.end()
    return [*tokens, Token("end", "", len(text))]


class _Reader:
    """Recursive-descent parser over the tokens of a rule."""

    def __init__(self, text: str) -> None:
        if len(text) > MOST_CHARACTERS:
            raise OptionError(f"a rule of {len(text):,} characters. Use at most {MOST_CHARACTERS:,}.")
        if not text.isascii() and text != text.encode("utf-8", "replace").decode("utf-8"):
            raise OptionError(f"rule {text!r}: holds characters that no text has (lone surrogates). Write it again.")
        self.text, self.tokens, self.place, self.depth = text, _tokens(text), 0, 0
        n_signs = sum(token.kind == "sign" for token in self.tokens)
        if n_signs > MOST_SIGNS:
            raise OptionError(f"rule {text[:40]!r}..: {n_signs:,} signs and brackets. Use at most {MOST_SIGNS}.")

    def take(self) -> Token:
        token = self.tokens[self.place]
        self.place = min(self.place + 1, len(self.tokens) - 1)
        return token

    def peek(self) -> str:
        """Return the next token without consuming it if it is a sign, otherwise an empty text."""
        token = self.tokens[self.place]
        return token.text if token.kind == "sign" else ""

    def expect(self, sign: str) -> None:
        token = self.take()
        if token.kind != "sign" or token.text != sign:
            raise self.error(token, repr(sign))

    def end(self) -> None:
        token = self.take()
        if token.kind != "end":
            raise self.error(token, "the end of the rule")

    def error(self, token: Token, wanted: str) -> OptionError:
        token_text = f"{token.text!r} (character {token.place + 1})" if token.kind != "end" else "its end"
        return OptionError(f"rule {self.text!r}: expected {wanted}, found {token_text}.")

    def expression(self) -> Node:
        self.depth += 1
        if self.depth > DEEPEST:
            raise OptionError(f"rule {self.text[:40]!r}..: more than {DEEPEST} brackets inside each other.")
        node = self.term()
        while self.peek() in ("+", "-"):
            sign = self.take().text
            node = Operation(sign, node, self.term())
        self.depth -= 1
        return node

    def term(self) -> Node:
        node = self.factor()
        while self.peek() in ("*", "/", "//", "%"):
            sign = self.take().text
            node = Operation(sign, node, self.factor())
        return node

    def factor(self) -> Node:
        negative = False
        while self.peek() == "-":
            self.take()
            negative = not negative
        node = self.primary()
        if not negative:
            return node
        if isinstance(node, Constant) and not isinstance(node.value, str):
            return Constant(-node.value)
        return Operation("-", Constant(0), node)

    def primary(self) -> Node:
        token = self.take()
        match token.kind:
            case "number":
                return Constant(self.number(token))
            case "text":
                return Constant(re.sub(r"\\(.)", r"\1", token.text[1:-1]))
            case "column":
                return Name(token.text[1:-1].replace("``", "`"))
            case "word" if self.peek() == "(":
                return self.call(token)
            case "word":
                return Name(token.text)
        if token.text == "(" and token.kind == "sign":
            node = self.expression()
            self.expect(")")
            return node
        raise self.error(token, "a column, a number, a text or a bracket")

    def number(self, token: Token) -> int | float:
        """Return the value of a number; integers beyond 64 bits are floats, which Polars can compute with."""
        value = float(token.text)
        if math.isinf(value):
            raise OptionError(
                f"rule {self.text[:60]!r}: the number {token.text[:20]!r} (character {token.place + 1}) is infinite. "
                "Use a smaller one, or leave the rule out."
            )
        return int(token.text) if token.text.isdigit() and value < LARGEST_INTEGER else value

    def call(self, name: Token) -> Node:
        if name.text not in FUNCTIONS:
            close_names = get_close_matches(name.text, FUNCTIONS, n=3)
            hint = (
                f"Did you mean {', '.join(close_names)}?"
                if close_names
                else f"There are {', '.join(sorted(FUNCTIONS))}."
            )
            raise OptionError(f"rule {self.text!r}: no function {name.text!r}. {hint}")
        self.expect("(")
        arguments = [self.expression()]
        while self.peek() == ",":
            self.take()
            arguments.append(self.expression())
        self.expect(")")
        min_arguments, max_arguments = FUNCTIONS[name.text].arity
        if not min_arguments <= len(arguments) <= max_arguments:
            expected_count = (
                str(min_arguments) if min_arguments == max_arguments else f"{min_arguments} to {max_arguments}"
            )
            raise OptionError(
                f"rule {self.text!r}: {name.text} takes {expected_count} arguments, and here it has {len(arguments)}."
            )
        return Call(name.text, tuple(arguments))
