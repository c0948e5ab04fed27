"""README and docs/: each link between them leads somewhere, and each command is one that there is."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from appliance.command_line import load
from appliance.commands.remote.run import VERBS, parse
from appliance.main import _BESIDE, _SMALL, REMOTE

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


def headings(page: Path) -> set[str]:
    """Return the anchors of a page: its own, and those that GitHub makes of headings."""
    text = re.sub(r"(?ms)^```.*?^```$", "", page.read_text(encoding="utf-8"))
    found = re.findall(r"(?m)^#+ (.+)$", text)
    named = re.findall(r'<a name="([^"]+)">', text)
    return {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in found} | set(named)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_link_leads_to_a_file_and_a_heading(page):
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        aim = (page.parent / path).resolve() if path else page
        assert aim.exists(), target
        assert not anchor or anchor in headings(aim), target


def test_the_first_page_stays_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 200


def test_the_reference_of_the_client_is_that_of_its_docstrings():
    from client_wheel import reference

    assert reference.PAGE.read_text() == reference.page(), "python -m client_wheel.reference"


def shell_lines(page: Path) -> list[list[str]]:
    """Return the words behind `rocketbox` in each command of a page's blocks; `script/server` is `rocketbox serve`."""
    found = []
    fenced = re.findall(r"(?ms)^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"))
    blocks = [text for language, text in fenced if language in ("", "sh", "bash")]
    for line in "\n".join(blocks).replace("\\\n", " ").splitlines():
        at = re.search(r"(?:^|\| |exec )(?:\S*/)?(rocketbox|script/server) (.+)", line)
        if at is not None:
            words = shlex.split(at[2].partition(" | ")[0], comments=True)
            if "<" in words or ">" in words:
                words = words[: min(words.index(one) for one in ("<", ">") if one in words)]
            found.append(["serve", *words] if at[1] == "script/server" else words)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_command_of_a_page_is_one_that_is_taken(page, tmp_path):
    for words in shell_lines(page):
        if words[0] in REMOTE and words[1] not in _BESIDE.get(words[0], ()):
            parse(words[0], words[1:])
        elif words[0] == "serve" and "--help" not in words:
            # The files are the reader's own.
            plain = [word for at, word in enumerate(words) if word != "-c" and words[at - 1] != "-c"]
            kept = [word for word in plain[1:] if word != "--reports"]
            load(kept if "--data-dir" in kept else [*kept, "--data-dir", str(tmp_path)], {})
        else:
            assert words[0] in (*_SMALL, "serve") or words[0] in REMOTE, words


def test_commands_of_pages_are_found():
    assert len([words for page in PAGES for words in shell_lines(page)]) > 20
    assert ["group", "reset", "billing", "--to", "time", "--at", "1 h ago", "--dry-run"] in shell_lines(PAGES[0])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_command_that_a_sentence_names_is_there(page):
    for code in re.findall(r"`rocketbox ([a-z-]+) ([a-z][a-z-]*)[^`\n]*`", page.read_text(encoding="utf-8")):
        noun, word = code
        if noun in REMOTE and word not in _BESIDE.get(noun, ()):
            verbs = {verb.name.split()[1] for verb in VERBS if verb.noun == noun}
            assert word in verbs, f"rocketbox {noun} {word}"
