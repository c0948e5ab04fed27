"""Recognises passwords that guessers try first: one or two common words with digits and signs around them, rows of
keys, repetitions. The words are a short list in this file; no service is asked over the network.
"""

from __future__ import annotations

from itertools import pairwise

WORDS = frozenset(
    """
    password passwort passwd passphrase pass secret geheim login letmein welcome willkommen hello hallo admin
    administrator root user guest test testing tester demo default changeme change temp temporary system server service
    manager master super sudo access private public company office internet network computer database oracle mysql
    postgres redis kafka rocketmq rocketbox rocket rabbitmq activemq broker console apache alibaba aliyun docker
    kubernetes linux ubuntu debian windows microsoft google apple amazon facebook samsung android
    qwerty qwertz azerty qwertyuiop qwertzuiop azertyuiop asdf asdfgh asdfghjkl zxcv zxcvbn zxcvbnm yxcvbnm qazwsx
    qazwsxedc wsxedc edcrfv abc abcd abcde abcdef abcdefg abcdefgh abcdefghij abcdefghijk xyz
    iloveyou love loveyou iloveu baby angel princess prince sunshine flower summer winter spring autumn fall january
    february march april june july august september october november december monday tuesday wednesday thursday friday
    saturday sunday dragon monkey tiger lion eagle shadow batman superman spiderman pokemon naruto starwars jedi matrix
    football baseball basketball soccer hockey tennis liverpool arsenal chelsea barcelona madrid juventus bayern
    michael jordan jennifer jessica ashley daniel andrew thomas robert charlie george harley thunder mustang ferrari
    porsche mercedes corvette hunter killer ginger pepper cookie cheese chocolate banana orange apple coffee
    freedom whatever nothing trust trustno trustnoone money dollar million lucky happy smile peace jesus christ heaven
    hacker ninja pirate magic wizard merlin gandalf samantha michelle nicole elizabeth
    woaini nihao mima shanghai beijing china chinese taobao tencent huawei
    """.split()
)
# Digits and signs that people type instead of a letter.
_FOR_LETTERS = str.maketrans("013457@$!|", "oieastasil")
#: A password with at least this many letters besides common words does not count as mostly common words.
_MORE = 4


def is_weak(password: str, *names: str) -> bool:
    """True if a password is mostly common words or the given names, a row or a repetition. names: the user's."""
    plain = password.casefold()
    return _is_repeated(plain) or _is_row(plain) or any(_is_words(one, names) for one in (plain, _letters(plain)))


def _letters(plain: str) -> str:
    return plain.translate(_FOR_LETTERS)


def _letters_only(text: str) -> str:
    return "".join(letter for letter in text if letter.isalpha())


def _is_words(plain: str, names: tuple[str, ...]) -> bool:
    rest = _letters_only(plain)
    if not rest:
        return False
    common = WORDS | {_letters_only(name.casefold()) for name in names}
    for word in sorted(common, key=len, reverse=True):
        if len(word) > 2:
            rest = rest.replace(word, "")
    return len(rest) < _MORE


def _is_repeated(plain: str) -> bool:
    """True if a text repeats a short piece, or has fewer than five different characters."""
    return len(set(plain)) < 5 or any(
        plain == (plain[:size] * (len(plain) // size + 1))[: len(plain)] for size in range(1, len(plain) // 2 + 1)
    )


def _is_row(plain: str) -> bool:
    """True if most characters follow each other, forwards or backwards: 1234567890, abcdefghij."""
    steps = [ord(after) - ord(before) for before, after in pairwise(plain)]
    return bool(steps) and sum(step in (1, -1) for step in steps) >= 0.7 * len(steps)
