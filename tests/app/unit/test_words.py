"""What is the same word, and what is a word, in the scripts that people write."""

import pytest

from app.domain.words import RULE, characters_of, fold, spell_words, split_negated, split_words


@pytest.mark.parametrize(
    "forms",
    [
        ("ışık", "IŞIK", "isik", "İŞIK", "ıs\u0327ık"),
        ("istanbul", "İSTANBUL", "ISTANBUL", "i\u0307stanbul"),
        ("café", "cafe\u0301", "CAFÉ", "cafe", "ｃａｆé"),
        ("Straße", "STRASSE", "STRAẞE"),
        ("œuvre", "OEUVRE", "Œuvre"),
        ("Łódź", "lodz"),
        ("đường", "Duong", "ĐƯỜNG"),
        ("smørrebrød", "SMORREBROD"),
        ("čeština", "cestina"),
        ("ğ", "g", "g\u0306"),
        ("ﬁne", "fine"),
        ("ΟΔΟΣ", "οδός", "οδοσ"),
        ("ёлка", "ЕЛКА", "е\u0308лка"),
        ("йод", "Йод", "и\u0306од"),
        ("м’яч", "м'яч", "мяч", "мʼяч"),
        ("हिन्दी", "हिंदी"),
        ("क़लम", "कलम", "क\u093cलम"),
        ("٤٢", "42", "४२", "４２"),
        ("كِتَابٌ", "كتـــاب", "كتاب"),
        ("أحمد", "احمد", "إحمد"),
        ("مدرسة", "مدرسه"),
        ("على", "علي", "علی"),
        ("שָׁלוֹם", "שלום"),
        ("ｶﾞﾗｽ", "ガラス", "カ\u3099ラス", "がらす"),
        ("컵", "\u110f\u1165\u11b8"),
        ("น้ำ", "น้ํา"),
        ("boy's", "boys", "boy’s", "BOYʼS"),
        ("l'été", "été", "L’ÉTÉ", "ete"),
        ("1,000", "1000", "1.000"),
        ("3,5", "3.5"),
        ("👍🏽", "👍", "👍\ufe0f"),
        ("👩🏽\u200d💻", "👩\u200d💻"),
        ("soft\u00adware", "software", "soft\u200bware", "\ufeffsoftware"),
        ("C♯", "c#"),
    ],
)
def test_forms_of_a_word_are_one(forms: tuple[str, ...]) -> None:
    assert [split_words(form) for form in forms] == [split_words(forms[0])] * len(forms)
    assert split_words(forms[0])


@pytest.mark.parametrize(
    ("one", "other"),
    [("йод", "иод"), ("बाल", "बल"), ("กา", "กี"), ("c++", "c"), ("c#", "c"), (".net", "net"), ("🇩🇪", "🇫🇷")],
)
def test_different_words_are_told_apart(one: str, other: str) -> None:
    assert split_words(one) != split_words(other)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("size L, R; C++ (C#) and .NET.", ["size", "l", "r", "c++", "c#", "and", ".net"]),
        ("C++17 C#.", ["c++", "17", "c#"]),
        (
            "black+white 2.5kg mp3 4K t-shirt_new",
            ["black", "white", "2.5", "kg", "mp3", "4k", "t", "shirt", "new"],
        ),
        ("192.168.0.1 node.js #sale", ["192.168.0.1", "node", "js", "sale"]),
        ("don't rock'n'roll d'or", ["dont", "rocknroll", "or"]),
        ("红色手机 包", ["红色", "色手", "手机", "包"]),
        ("휴대폰을 컵", ["휴대", "대폰", "폰을", "컵"]),
        ("赤い2024年", ["赤い", "2024", "年"]),
        ("สีดำ", ["สีดํ", "ดํา"]),
        ("किताबें", ["किताबें"]),
        ("🍎🍎❤\ufe0f\u200d🔥 1\ufe0f\u20e3 🇩🇪🇫🇷", ["🍎", "🍎", "❤\u200d🔥", "1", "🇩🇪", "🇫🇷"]),
        ("♥ ★ $20 20° ™", ["♥", "★", "$", "20", "20"]),
        ("• — … « » 、。", []),
        ("می\u200cخواهم", ["مي", "خواهم"]),
    ],
)
def test_a_text_has_words(text: str, words: list[str]) -> None:
    assert split_words(text) == words
    assert split_words(" ".join(words)) == words or any(len(word) == 2 for word in words)


def test_every_character_can_be_folded_and_folding_ends() -> None:
    for code in range(0x3200):
        once = fold(chr(code))
        assert fold(once) == once, hex(code)
    assert split_words("a\ud800b") == ["a", "b"]


def test_words_are_found_where_they_stand() -> None:
    text = "A «Сумка», hand-bag... .NET C++ 휴대폰!"
    found = [(word, text[start:end]) for word, start, end in spell_words(text)]
    assert found == [("a", "A"), ("сумка", "Сумка"), (".net", ".NET"), ("c++", "C++"), ("휴대폰", "휴대폰")]
    assert characters_of("手机") == ["手", "机"]
    assert characters_of("word") == []
    assert RULE == 2


@pytest.mark.parametrize(
    ("text", "meant", "negated"),
    [
        ("the same but blue", "the same but blue", ""),
        ("not red, blue", "blue", "red"),
        ("blue, not red", "blue", "red"),
        ("Not red. Blue", "Blue", "red"),
        ("a blue one instead of a red one", "a blue one", "a red one"),
        ("not red but blue", "blue", "red"),
        ("not red\nblue", "blue", "red"),
        ("blue, not leather; without laces", "blue", "leather, laces"),
        ("not only red, no name", "not only red, no name", ""),
        ("not 3.5 cm wide", "", "3.5 cm wide"),
        ("a knot", "a knot", ""),
        ("puma -shoes", "puma", "shoes"),
        ("-red, blue -flip-flops", "blue", "red, flip-flops"),
        ("-shoes", "", "shoes"),
        ("t-shirt - blue, -5 - 3", "t-shirt - blue, -5 - 3", ""),
        ("handbag \u2212black", "handbag", "black"),
        ("handbag \u2013black", "handbag", "black"),
        ("-red dress\n-blue shoes", "-red dress\n-blue shoes", ""),
        ("Herrenschuhe und -stiefel", "Herrenschuhe und -stiefel", ""),
        ("not", "not", ""),
        ("shoes, no heels", "shoes", "heels"),
        ("vestido no verão, yes or no", "vestido no verão, yes or no", ""),
        ("  No black shoes\n", "shoes", "black"),
        ("no\tpuma  shoes", "shoes", "puma"),
        ("no black puma shoes", "", "black puma shoes"),
        ("no black shoes please", "", "black shoes please"),
        ("not a red boat", "boat", "red"),
        ("without a moon", "", "a moon"),
        ("without high heels", "", "high heels"),
        ("instead of black shoes", "", "black shoes"),
        ("not red and blue", "", "red and blue"),
        ("not for running", "", "for running"),
        ("no. 5, no 5", "no. 5, no 5", ""),
        ("no name shirt", "no name shirt", ""),
        ("Schuhe ohne Absatz, nicht rot", "Schuhe", "Absatz, rot"),
        ("keine schwarzen Schuhe", "Schuhe", "schwarzen"),
        ("kein Leder oder Samt", "", "Leder oder Samt"),
        ("nicht rot sondern blau", "blau", "rot"),
        ("nicht nur rot", "nicht nur rot", ""),
        ("nicht für Kinder", "", "für Kinder"),
        ("nichts", "nichts", ""),
    ],
)
def test_what_a_text_negates_ends_with_a_comma_or_but_or_is_a_word_after_a_minus_sign(
    text: str, meant: str, negated: str
) -> None:
    assert split_negated(text) == (meant, negated)


def test_beside_other_parts_a_described_thing_is_not_meant() -> None:
    assert split_negated("no black shoes", is_alone=False) == ("", "black shoes")
    assert split_negated("handbag, no red", is_alone=False) == ("handbag", "red")
