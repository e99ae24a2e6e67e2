"""The words of a text, and how they are compared: in training, queries, names of labels, values of facets."""
# Text is compared as people type it. Compatible forms are one (full width, ligatures), as are capitals and
# small letters, with the Turkish dotted and dotless i together. Accents are left out of Latin, Greek and
# Cyrillic letters, but for й and ў, which everybody types; so are Arabic and Hebrew points, and the forms of
# alef, yeh and teh marbuta that people mix. Vowel signs of other scripts are letters. Katakana is read as
# hiragana, and a digit of any script as 0 to 9.
#
# A word is a run of letters and digits: one letter is enough, and ``c++``, ``c#``, ``.net`` and ``3.5`` are
# words. A measure (``10kg``) is two words. An apostrophe joins its neighbours (``boy's`` is ``boys``), but
# for French and Italian articles, which are left out. Each emoji and symbol is a word, whatever its colour of
# skin. Scripts without spaces between words, and Korean, whose particles are written on to them, are taken as
# overlapping pairs of characters.

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from itertools import pairwise

RULE = 2
"""Number of this rule. Models that were fitted by another one store no number, and go on with theirs."""

_ACCENTS = "\u0300-\u0305\u0307-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
_POINTS = (
    "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"
    "\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u08d3-\u08ff"
)
_UNSEEN = "\u00a9\u00ae\u00b0\u2122\u2120\u093c\ufe0e\ufe0f\U0001f3fb-\U0001f3ff"
"""Signs that people leave out: of rights, degrees, the Devanagari dot, and how an emoji is drawn."""
_LEFT_OUT = re.compile(f"[{_ACCENTS}{_POINTS}{_UNSEEN}]")
_BREVE, _ZWJ, _ZWNJ = "\u0306", "\u200d", "\u200c"
_STRAY_BREVE = re.compile(f"(?<![иу]){_BREVE}")
_VIRAMA = "\N{DEVANAGARI SIGN VIRAMA}"
_NASAL = re.compile(f"[ङञणनम]{_VIRAMA}(?=[क-ह])")  # written as a dot above as often as by the letter

_TAGS = "\U000e0020-\U000e007f"
_FLAG = "\U0001f1e6-\U0001f1ff"
_SYMBOLS = (
    "$\u00a2-\u00a5\u20a0-\u20cf\u2190-\u2211\u2213-\u2218\u221a-\u22c4\u22c6-\u24ff\u2600-\u2bff"
    "\U0001f000-\U0001f1e5\U0001f200-\U0001faff"
)
"""Currencies, arrows, mathematics, dingbats, emoji; no bullets, which stand at the beginning of lines."""
_STRAY_ZWJ = re.compile(f"(?<![{_SYMBOLS}{_TAGS}]){_ZWJ}|{_ZWJ}(?![{_SYMBOLS}])")
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf\u1b00-\u1b7f"
    "\u3005-\u3007\u3041-\u318f\u31a0-\u31ff\u3400-\u4dbf\u4e00-\ua4cf\ua960-\ua9ff\uaa60-\uaa7f\uac00-\ud7ff"
    "\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
"""Thai, Lao, Myanmar, Hangul, Khmer, Tai, Balinese, Kana, Bopomofo, Han, Yi and Javanese."""
_HAS_UNSPACED = re.compile(f"[{_UNSPACED}]")
_HAS_SIGNS = re.compile(
    "[\u3005-\u3007\u3400-\u4dbf\u4e00-\ua4cf\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Of Han, Yi and Hangul: scripts of thousands of characters."""
_STRETCH = re.compile(f"[{_UNSPACED}]+|[^{_UNSPACED}]+")

_LETTER = rf"[^\s!-/:-@\[-`{{-~{_SYMBOLS}{_FLAG}{_TAGS}]"
_WORD = re.compile(
    rf"[{_FLAG}]{{2}}|[{_SYMBOLS}][{_TAGS}]*(?:{_ZWJ}[{_SYMBOLS}])*"
    rf"|(?<![^\s(\[,;/])\.(?=[a-z]){_LETTER}+"
    rf"|\d+(?:\.\d+)+{_LETTER}*"
    rf"|{_LETTER}+(?:(?<=[^\W\d])(?:\+\+|[+\#](?!{_LETTER})))?"
)
_PLAIN = re.compile("[a-z0-9]+")
"""Words of folded ASCII where no other rule applies; patterns that begin with one set are faster."""
_SPECIAL, _MEASURE = re.compile(r"['\"+#$.,](?:(?<![.,])|(?=[a-z0-9]))"), re.compile("[0-9][a-z]")
_ELISION = re.compile(rf"(?<![^\s(\[,;/-])(?:[cdjlmnst]|qu|un|[dns]?[aeu]ll)'(?={_LETTER}{{2}})")
_APOSTROPHE = re.compile(rf"(?<={_LETTER})['\"](?={_LETTER})")
_THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}([.,])\d{3}(?:\1\d{3})*(?!\1?\d)")
_DECIMAL_COMMA = re.compile(r"(?<=\d),(?=\d)")
_UNIT = re.compile(
    rf"(?<=\d)(?=(?:[cdkm]?[lgmw]|[kmgt]b|[kmg]?hz|k?v|mah|oz|lbs?|ft|in|inch|px|mp|pcs?)(?!{_LETTER}))"
)
"""Where a measure stands at its number."""
_PIECE = re.compile(r"[^\s!\"$%&(-*,/:-@\[-`{-~]+")  # part of a text that may be written as one word
_MARGIN = (" ", ".", "'", '"')  # what may stand around a word, folded

_NEGATED = re.compile(
    r"(?:\b(?:not(?!\s+only\b)|nicht(?!\s+nur\b)|without|instead\s+of|ohne|keine?[mnrs]?)"
    r"|(?:\A|(?<=[,;]\s))no(?!\W*\d|\s+name))"  # elsewhere it is Portuguese, or an answer
    r"\s+(?P<clause>\S.*?)(?:[,;\n]|[.:!?](?=\s|$)|\s(?:but|sondern|aber)\b|$)"
    r"|(?:\A(?!.*\n)|(?<=[^\n] )(?<!und )(?<!oder )(?<!and )(?<!or ))[-\u2013\u2212]"
    r"(?P<word>[^\W\d_][^\s,;]*)",
    re.IGNORECASE,
)
# A thing that is not meant as it is described, and nothing else.
_DESCRIBED = re.compile(
    r"\s*(?:not?|keine?[mnrs]?)\s+(?:(?:an?|any|the)\s+)?([^\W\d_]{3,})\s+([^\W\d_]{3,})\s*", re.IGNORECASE
)

# fmt: off
_FUNCTION_WORDS = frozenset((
    "a", "an", "and", "any", "are", "at", "but", "by", "for", "from", "her", "his", "i", "in", "instead",
    "is", "it", "its", "like", "me", "my", "of", "on", "one", "or", "our", "same", "some", "something",
    "that", "the", "their", "this", "to", "us", "want", "with", "your",
))
# fmt: on

_MOST_CACHED = 1 << 16
_SAME = str.maketrans(
    {
        **dict.fromkeys("’‘‛ʼʻʽʾʿ´＇′ʹ׳`", "'"),
        **dict.fromkeys("״“”„", '"'),
        **dict(zip("ıøłđðħŧŋĸƒəɓɗɠƙɲƴґ", "iolddhtnkfebdgknyг", strict=True)),
        **dict(zip("ٱىیکةہ", "اييكهه", strict=True)),
        **{"æ": "ae", "œ": "oe", "þ": "th"},
        **{"ँ": "ं", "♯": "#", _ZWNJ: " "},
    }
)


class _Letters(dict[int, str]):
    """What each character is compared as; found out when it is first seen."""

    def __missing__(self, code: int) -> str:
        folded = _fold_character(chr(code))
        if len(self) < _MOST_CACHED:
            self[code] = folded
        return folded


_LETTERS = _Letters()


def fold(text: str) -> str:
    """Return a text in the form in which it is compared; punctuation of other than ASCII is a space."""
    if text.isascii():
        return text.lower()
    folded = text.translate(_LETTERS)
    if _BREVE in folded:
        folded = _STRAY_BREVE.sub("", folded)
    if _VIRAMA in folded:
        folded = _NASAL.sub("\N{DEVANAGARI SIGN ANUSVARA}", folded)
    folded = unicodedata.normalize("NFC", folded)
    return _STRAY_ZWJ.sub("", folded) if _ZWJ in folded else folded


def split_words(text: str) -> list[str]:
    """Return the words of a text, folded; of scripts without spaces pairs of characters, or a single one."""
    words = _find_words(text)
    if text.isascii() or all(map(str.isascii, words)):
        return words
    return [part for word in words for _, parts in _stretches(word) for part in parts]


def split_stretches(text: str) -> list[tuple[str, list[str]]]:
    """Return the stretches of a text without a space, folded, each with its words: one, or several pairs."""
    words = _find_words(text)
    if text.isascii() or all(map(str.isascii, words)):
        return [(word, [word]) for word in words]
    return [stretch for word in words for stretch in _stretches(word)]


def characters_of(word: str) -> list[str]:
    """Return the characters of a word of `split_words` from a script without spaces, or of a joined emoji."""
    if word.isascii():
        return []
    if _ZWJ in word:
        return word.split(_ZWJ)
    return _characters(word) if _HAS_UNSPACED.match(word) else []


def telling_characters(word: str) -> list[str]:
    """Return `characters_of` a word if they say much alone: not the few letters of Thai or Kana."""
    characters = characters_of(word)
    is_telling = len(characters) == 1 or _ZWJ in word or _HAS_SIGNS.search(word)
    return characters if is_telling else []


def is_minor(word: str) -> bool:
    """Return whether a word is one letter, digit or currency sign, which matters little beside others."""
    if len(word) != 1:
        return False
    return unicodedata.category(word) == "Sc" or (word.isalnum() and not _HAS_UNSPACED.match(word))


def is_telling(word: str) -> bool:
    """Return whether a word says something itself: neither a minor one, nor a function word of English."""
    return not is_minor(word) and word not in _FUNCTION_WORDS


def split_negated(text: str, is_alone: bool = True) -> tuple[str, str]:
    """Return a text without what it says is not meant, and that alone, either of which may be empty: up to a
    comma or "but", and words after a minus sign, which begins no list of several lines."""
    # Where nothing else is asked for, the thing is meant: "no black shoes" are shoes.
    described = _DESCRIBED.fullmatch(text) if is_alone else None
    if described and all(map(is_telling, map(fold, described.groups()))) and _NEGATED.match(text.strip()):
        return described[2], described[1]
    negated = ", ".join(match["clause"] or match["word"] for match in _NEGATED.finditer(text))
    rest = _NEGATED.sub("", text).strip(" ,;") if negated else text
    return (rest if split_words(rest) else ""), negated


def spell_words(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the stretches of a text that are written as one piece, each with start and end of the piece."""
    for match in _PIECE.finditer(text):
        piece, (start, end) = match[0], match.span()
        if piece.isascii() and piece.isalpha():  # as most: it is its own word
            yield piece.lower(), start, end
            continue
        stretches = split_stretches(piece)
        if len(stretches) == 1:
            while end - start > 1 and fold(text[end - 1]) in _MARGIN:
                end -= 1
            while end - start > 1 and fold(text[start]) in _MARGIN and text[start] != ".":
                start += 1
            yield stretches[0][0], start, end


def _find_words(text: str) -> list[str]:
    folded = fold(text)
    if folded.isascii() and not (_SPECIAL.search(folded) or _MEASURE.search(folded)):
        return _PLAIN.findall(folded)
    if "'" in folded or '"' in folded:
        folded = _APOSTROPHE.sub("", _ELISION.sub("", folded))
    if "," in folded or "." in folded:
        folded = _THOUSANDS.sub(lambda match: match[0].replace(match[1], ""), folded)
        folded = _DECIMAL_COMMA.sub(".", folded)
    folded = _UNIT.sub(" ", folded)
    return _WORD.findall(folded)


def _stretches(word: str) -> Iterator[tuple[str, list[str]]]:
    if word.isascii() or not _HAS_UNSPACED.search(word):
        yield word, [word]
        return
    for stretch in _STRETCH.findall(word):
        characters = _characters(stretch) if _HAS_UNSPACED.match(stretch) else [stretch]
        yield stretch, list(map("".join, pairwise(characters))) if len(characters) > 1 else [stretch]


def _characters(stretch: str) -> list[str]:
    """Return characters, each with the marks on it."""
    characters: list[str] = []
    for character in stretch:
        if characters and unicodedata.category(character)[0] == "M":
            characters[-1] += character
        else:
            characters.append(character)
    return characters


def _fold_character(character: str) -> str:
    if _LEFT_OUT.match(character):
        return ""
    same = character.translate(_SAME)
    if same != character:
        return same
    if character in "йЙўЎ":
        return character.lower()
    if character in _ZWJ + _BREVE or re.match(f"[{_TAGS}]", character):
        return character
    decomposed = unicodedata.normalize("NFKD", character)
    if decomposed != character:
        parts = "".join(map(_fold_character, decomposed)).replace(_BREVE, "")
        return unicodedata.normalize("NFC", parts)
    category = unicodedata.category(character)
    if category == "Cf":
        return ""
    if category == "Nd":
        return str(unicodedata.decimal(character))
    if "ァ" <= character <= "ヶ":
        return chr(ord(character) - 0x60)
    folded = character.casefold()
    if folded != character:
        return "".join(map(_fold_character, folded))
    is_letter = (
        category[0] in "LMN" or category in ("Co", "Cn") or re.match(f"[{_SYMBOLS}{_FLAG}]", character)
    )
    return character if is_letter or character.isascii() else " "
