"""Every text of the pages is in the Chinese catalogue, and the compiled catalogue is that of the source."""

import ast
import gettext
import re
from pathlib import Path

import pytest

from appliance.console.audit import seal as audit_seal
from appliance.console.reports import sentences
from appliance.engine.translatable import Plural
from appliance.engine.window.sentences import TEMPLATES
from spark_reports import machine
from spark_reports.run import failures

ROOT = Path(__file__).parents[2]
#: error -> which of its arguments is the reason.
REASON_AT = {"InvalidInput": 1, "Unavailable": 0, "Conflict": 0, "Blocked": 0}
CATALOGUE = ROOT / "appliance/console/locale/zh_Hans/LC_MESSAGES/django"


def entries() -> list[tuple[str, list[str], str]]:
    """(msgid, its translations, flags and comments) of every entry but the heading and the obsolete."""
    found = []
    for block in re.split(r"\n\s*\n", CATALOGUE.with_suffix(".po").read_text(encoding="utf-8")):
        lines = [line for line in block.splitlines() if not line.startswith("#~")]
        comments = "\n".join(line for line in lines if line.startswith("#"))
        texts: dict[str, str] = {}
        key = ""
        for line in lines:
            if match := re.match(r'(msgid|msgid_plural|msgstr(?:\[\d\])?) (".*")', line):
                key = match.group(1)
                texts[key] = unquoted(match.group(2))
            elif line.startswith('"') and key:
                texts[key] += unquoted(line)
        if texts.get("msgid"):
            found.append(
                (texts["msgid"], [text for name, text in texts.items() if name.startswith("msgstr")], comments)
            )
    return found


def unquoted(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: {"n": "\n", "t": "\t"}.get(match.group(1), match.group(1)), text[1:-1])


def marked() -> set[str]:
    """Texts that templates and code mark, as far as a pattern finds them."""
    found = set()
    for path in (ROOT / "templates").rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        # Django doubles the percent signs of a template's text before it looks it up.
        found.update(
            (a or b).replace("%", "%%")
            for a, b in re.findall(r"""(?:\{% translate |_\()(?:"([^"]*)"|'([^']*)')""", text)
        )
    for path in (path for name in ("appliance", "spark_reports") for path in (ROOT / name).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found.update(re.findall(r"""\b(?:_|gettext|gettext_lazy|gettext_noop)\(\s*"((?:[^"\\]|\\.)*)"\s*\)""", text))
    return {text for text in found if text}


def test_every_entry_has_its_chinese():
    missing = [text for text, translations, _ in entries() if not translations or not all(translations)]
    assert not missing, "translate these and run script/messages --compile"
    assert not [text for text, _, comments in entries() if "fuzzy" in comments], "guesses of a tool"


def test_every_marked_text_is_in_the_catalogue():
    assert len(marked()) > 100
    missing = sorted(marked() - {text for text, _, _ in entries()})
    assert not missing, "run script/messages and translate what is new"


@pytest.mark.parametrize(
    "table", [TEMPLATES, audit_seal.TEMPLATES, sentences.NOTES, failures.SENTENCES, machine.WHATS, machine.HOWS]
)
def test_every_sentence_of_a_table_is_in_the_catalogue(table):
    """A text without its mark would be missing."""
    known = {text for text, _, _ in entries()}
    assert not [one for one in table.values() if (one if isinstance(one, str) else one.one) not in known]


def test_both_forms_of_a_sentence_have_the_same_values():
    for one in (*TEMPLATES.values(), *audit_seal.TEMPLATES.values(), *sentences.NOTES.values()):
        if isinstance(one, Plural):
            names, many = (sorted(re.findall(r"%\((\w+)\)", form)) for form in (one.one, one.many))
            assert names == many, one
            assert one.number in names, one


def test_the_compiled_catalogue_is_that_of_the_source():
    with open(CATALOGUE.with_suffix(".mo"), "rb") as file:
        compiled = gettext.GNUTranslations(file)
    for text, translations, _ in entries():
        if len(translations) == 1 and "msgid_plural" not in text:
            assert compiled.gettext(text) in (translations[0], text if not translations[0] else translations[0])


@pytest.mark.parametrize("kind", [r"%\(\w+\)[sdf]", r"<[a-z/]+>", r"\{\w+\}"])
def test_a_translation_keeps_what_is_filled_in(kind):
    for text, translations, _ in entries():
        for translation in translations:
            assert sorted(re.findall(kind, translation)) == sorted(re.findall(kind, text)), text


def test_the_engine_refuses_in_sentences_that_can_be_translated():
    """A plain text in one of these would be English on a Chinese page; only a peer's own words may be."""
    plain = []
    for path in (ROOT / "appliance/engine/window").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in REASON_AT:
                at = REASON_AT[node.func.id]
                if len(node.args) > at and isinstance(node.args[at], (ast.Constant, ast.JoinedStr)):
                    plain.append(f"{path.name}:{node.lineno}")
    assert not plain, "say() these, with a line in sentences.py"
