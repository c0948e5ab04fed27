"""A caller's charset: it decides nothing about addresses, and a form in another one than UTF-8 is refused."""

from __future__ import annotations

import pytest
from asgiref.sync import async_to_sync
from django.test import AsyncClient

pytestmark = pytest.mark.django_db

#: Python has codecs of these names, which decode no text.
NO_TEXT = ("zlib", "rot13")
OTHERS = (*NO_TEXT, "gbk", "utf-16", "idna", "iso-8859-1", "no-such-charset")
CSRF = "a" * 32


def get(client: AsyncClient, path: str, charset: str):
    return async_to_sync(client.get)(path, headers={"content-type": f"text/plain; charset={charset}"})


def test_parameters_of_an_address_are_utf_8(client_as, engine):
    client = AsyncClient()
    client.cookies.update(client_as("admin").cookies)
    for charset in OTHERS:
        page = get(client, "/system/users/?q=%C3%A9t%C3%A9", charset)
        assert page.status_code == 200
        assert 'value="été"' in page.content.decode(), charset


@pytest.mark.parametrize("path", ["/login/?next=%2Ftopics%2F", "/rocketmq/nsaddr?a=%E9", "/absent?a=%E9"])
def test_a_stranger_causes_no_error(engine, db, path):
    for charset in NO_TEXT:
        assert get(AsyncClient(), path, charset).status_code in (200, 404)


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "multipart/form-data; boundary=X"])
def test_a_form_in_another_charset_is_refused(people, engine, kind):
    client = AsyncClient(enforce_csrf_checks=True)
    client.cookies["rocketbox_csrf"] = CSRF
    fields = (("csrfmiddlewaretoken", CSRF), ("language", "zh-hans"))
    part = 'Content-Disposition: form-data; name="{}"\r\n\r\n{}\r\n'
    of_parts = "--X\r\n" + "--X\r\n".join(part.format(*one) for one in fields) + "--X--\r\n"
    form = of_parts if kind.startswith("multipart") else "&".join(map("=".join, fields))

    @async_to_sync
    async def posted(charset: str) -> int:
        answer = await client.generic("POST", "/language/", form.encode(), f"{kind}; charset={charset}")
        return int(answer.status_code)

    assert {charset: posted(charset) for charset in OTHERS} == dict.fromkeys(OTHERS, 400)
    assert {charset: posted(charset) for charset in ("utf-8", "UTF8", "us-ascii")} == {
        "utf-8": 302, "UTF8": 302, "us-ascii": 302
    }  # fmt: skip
