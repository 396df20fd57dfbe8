"""Equations of pages as MathML, which browsers draw by themselves, in pieces between which a line may end.

No browser breaks the lines of MathML. So that an equation fits a narrow window, it is divided before its relations,
sums, differences and words, and in long lists; the window decides where lines end.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator

from latex2mathml.converter import convert

NAMESPACE = "http://www.w3.org/1998/Math/MathML"
RELATIONS = frozenset("=≤≥<>≈\u223c∝←→∈≠≐≡:")
SUMS = frozenset("+\u2212-·\u00d7")
OPENING, CLOSING = frozenset("([{⟨"), frozenset(")]}⟩")
FUNCTIONS = frozenset(("log", "exp", "tanh", "clip", "sg", "argmax", "max", "min"))
LONG = 9
"""Number of symbols from which what is between two brackets may be divided, too."""
LONG_LIST = 18
"""Number of symbols from which a comma may end a line."""
TALL = frozenset(("mfrac", "munder", "munderover", "mtable"))


def displayed(equation: str) -> str:
    """Equations in TeX that stand alone, those between wide spaces each as a block."""
    blocks = ("<wbr>".join(pieces) for pieces in _pieces(equation, "block"))
    return " ".join(f'<span class="equation">{block}</span>' for block in blocks)


def inline(equation: str) -> str:
    """An equation in TeX within a line of text."""
    return " ".join("<wbr>".join(pieces) for pieces in _pieces(equation, "inline"))


def _pieces(equation: str, display: str) -> Iterator[Iterator[str]]:
    """The pieces of each equation between wide spaces, as MathML."""
    ET.register_namespace("", NAMESPACE)
    (row,) = ET.fromstring(convert(equation, display=display))
    symbols = list(_flat(row))
    begins = 0
    for end, symbol in [*enumerate(symbols), (len(symbols), None)]:
        if symbol is None or (_tag(symbol) == "mspace" and float(symbol.get("width", "0em")[:-2]) >= 1):
            if symbols[begins:end]:
                yield _divided(symbols[begins:end])
            begins = end + 1


def _divided(symbols: list[ET.Element]) -> Iterator[str]:
    """A row of symbols, divided before operators."""
    piece: list[ET.Element] = []
    for symbol in symbols:
        if piece and _begins_piece(symbol, piece):
            if _tag(symbol) == "mo":
                symbol.set("form", "infix")
            yield _written(piece)
            piece = []
        piece.append(symbol)
    yield _written(piece)


def _begins_piece(symbol: ET.Element, piece: list[ET.Element]) -> bool:
    before = piece[-1]
    if before.text == "," and sum(map(_length, piece)) > LONG_LIST:
        return True
    if _tag(symbol) == "mtext" or symbol.text in RELATIONS:
        return True
    # A sign has nothing before it that it could be added to.
    return symbol.text in SUMS and (_tag(before) != "mo" or before.text in CLOSING)


def _written(piece: list[ET.Element]) -> str:
    math = ET.Element(f"{{{NAMESPACE}}}math")
    for symbol in piece:
        spaced = _tag(symbol) == "mi" and symbol.text in FUNCTIONS
        math.extend([_space(), symbol, _space()] if spaced else [symbol])
    return ET.tostring(math, encoding="unicode")


def _space() -> ET.Element:
    return ET.Element(f"{{{NAMESPACE}}}mspace", width="0.17em")


def _flat(row: ET.Element) -> Iterator[ET.Element]:
    """The symbols of a row, also of those rows within it that are long."""
    for symbol in row:
        inner = symbol[0] if _tag(symbol) in ("msup", "msub") else symbol
        if _tag(inner) != "mrow" or _length(inner) < LONG:
            yield symbol
            continue
        symbols = list(inner)
        _resize(symbols)
        if inner is not symbol:
            # The exponent of a row is that of its last symbol, a bracket.
            symbol[0] = symbols[-1]
            symbols[-1] = symbol
        within = ET.Element("mrow")
        within.extend(symbols)
        yield from _flat(within)


def _resize(symbols: list[ET.Element]) -> None:
    """Give the brackets around a row the size that they had around the whole of it."""
    is_tall = any(_tag(each) in TALL for symbol in symbols for each in symbol.iter())
    for bracket in (symbols[0], symbols[-1]):
        if bracket.get("fence") == "true":
            bracket.set("minsize", "1.9em" if is_tall else "1.2em")


def _length(symbol: ET.Element) -> int:
    """The number of letters, digits and signs."""
    return sum(1 for each in symbol.iter() if each.text)


def _tag(symbol: ET.Element) -> str:
    return re.sub("{.*}", "", symbol.tag)
