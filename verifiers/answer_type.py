"""The kinds of answer that a problem may ask for."""

import enum


class AnswerType(enum.StrEnum):
    """What an answer is; it decides how one is extracted and when two are equal.

    `RATIONAL` takes fractions and decimals alike, exactly. `PERCENT` reads a bare number as percent too.
    `EXPRESSION` takes anything mathematical, and is the type of a gold that declares none.
    """

    INTEGER = "integer"
    RATIONAL = "rational"
    DECIMAL = "decimal"
    PERCENT = "percent"
    TUPLE = "tuple"
    SET = "set"
    INTERVAL = "interval"
    EXPRESSION = "expression"
    CHOICE = "choice"
    CODE = "code"
    STRING = "string"
