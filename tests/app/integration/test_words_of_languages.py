"""Texts of many languages are found by what their readers type, through the whole service."""

import json
from pathlib import Path

import numpy as np
import pytest

from app.domain.entities import Content, Modality
from app.services.catalogue.service import NewItem
from app.services.training.requests import TrainingParameters
from tests.app.integration.conftest import Pairs

TIMES = 2
LANGUAGES = {
    "vi": ["dien thoai|Điện thoại màu đỏ", "ao dai|Áo dài lụa", "tui xach|TÚI XÁCH da", "duong|Đường phèn"],
    "pl": ["lodz|Łódź żaglowa", "zolty|ŻÓŁTY szalik", "ksiazka|Książka", "swieca|Świeca woskowa"],
    "el": ["οδος|Οδός Αθηνάς", "ΚΑΦΕΣ|καφές ελληνικός", "τσαντα|Τσάντα δερμάτινη", "θάλασσας|ΘΑΛΑΣΣΑΣ θέα"],
    "ru": ["елка|Ёлка зелёная", "ЧЁРНЫЙ|черный зонт", "чайник|ЧАЙНИК", "сумка|«Сумка» кожаная"],
    "uk": ["мʼяч|М'яч футбольний", "їжак|Їжак плюшевий", "гудзик|ґудзик", "йогурт|ЙОГУРТ"],
    "hi": ["हिंदी|हिन्दी किताब", "ज़मीन|जमीन का नक्शा", "बाल|बाल कंघी", "बेल|बेल का पौधा"],
    "ta": ["பை|தோல் பை", "பூ|சிவப்பு பூ", "கடிகாரம்|கடிகாரம்", "குடை|நீல குடை"],
    "th": ["กระเป๋า|กระเป๋าสีดำ", "นาฬิกา|นาฬิกาข้อมือ", "ร่ม|ร่มสีฟ้า", "น้ำ|ขวดน้ำ"],
    "ko": ["휴대폰|휴대폰을 샀다", "우산|파란우산이 있다", "가방|가방은 검정", "컵|흰컵"],
    "ja": ["すまほ|赤いスマホ", "ｶﾊﾞﾝ|黒いカバン", "傘|青い傘", "時計|銀の腕時計"],
    "zh": ["手機|紅色手機殼", "伞|蓝色雨伞", "红茶杯|红茶 茶杯", "毛巾|棉毛巾"],
    "ar": ["كتاب|كِتَابٌ جديد", "احمد|أحمد", "مدرسه|مدرسة", "حقيبة|حقيــبة جلد"],
    "fa": ["روسری|روسرى", "می خواهم|می‌خواهم", "کیف|كيف", "۴۳|سایز 43"],
    "he": ["שלום|שָׁלוֹם עולם", 'צה"ל|צה״ל', "תיק|תיק עור", "ספר|סֵפֶר"],
    "de": ["STRASSE|Straße im Regen", "grün|GRÜN", "fussball|Fußball", "tee|grüner Tee"],
    "fr": ["ete|robe d’été", "OEUVRE|œuvre d'art", "aujourd’hui|aujourd'hui", "garcon|GARÇON"],
    "wide": ["full width|ＦＵＬＬ　ｗｉｄｔｈ", "42|サイズ４２", "ﬁsh|fish", "kg|１０㎏"],
    "signs": ["🍎|🍎 apple", "👍|👍🏽", "👩‍💻|👩🏿‍💻", "🇩🇪|🇩🇪", "🇫🇷|🇫🇷", "❤|❤️", "1|1️⃣", "★|★"],
    "code": ["C++|C++ course", "c#|C# course", ".net|.NET course", "R|R course", "C|C course", "l|size L"],
    "en": ["tshirt|t-shirt", "wi-fi|wifi router", "mens|men's belt", "2.5kg|2,5 kg rice", "1000|1,000"],
}  # fmt: skip


def find_all(pairs: Pairs, name: str, entries: list[tuple[str, str]]) -> list[str]:
    """Train on texts with vectors as partners; return what queries do not find, or call unknown."""
    modalities = [Modality("x", {"type": "vector"}), Modality("text", {"type": "tfidf"})]
    pairs.services.catalogue.create(name, modalities)
    rng = np.random.default_rng(0)
    items = []
    for number, (_, text) in enumerate(entries):
        for copy in range(TIMES):
            key = f"{number}-{copy}"
            row = 3 * np.eye(len(entries))[number] + 0.1 * rng.standard_normal(len(entries))
            items.append(pairs.item("x", f"x{key}", row, pair_id=key))
            items.append(NewItem("text", Content(text=text), f"t{key}", pair_id=key))
    pairs.services.catalogue.add_items(name, items)
    pairs.train(name, TrainingParameters())
    queries = [{"text": query} for query, _ in entries]
    body = {"queries": queries, "k": TIMES, "include": []}
    results = (
        pairs.client().post(f"/v1/collections/{name}/search/text-to-x/batch", json=body).json()["results"]
    )
    return [
        f"{name}: {query} {[hit['id'] for hit in result['hits']]} {result['notices']}"
        for number, ((query, _), result) in enumerate(zip(entries, results, strict=True))
        if [hit["id"].split("-")[0] for hit in result["hits"]] != [f"x{number}"] * TIMES
        or any(notice["code"] in ("unknown-words", "no-words") for notice in result["notices"])
    ]


def test_each_query_finds_its_own_text_in_every_language(pairs: Pairs) -> None:
    entries = [entry.partition("|")[::2] for language in LANGUAGES.values() for entry in language]
    assert find_all(pairs, "all", entries) == []


@pytest.mark.data
def test_each_query_of_the_cases_finds_its_own_text(pairs: Pairs, test_data: Path) -> None:
    languages = json.loads((test_data / "cases" / "texts.json").read_text(encoding="utf-8"))
    assert [miss for name, entries in languages.items() for miss in find_all(pairs, name, entries)] == []
