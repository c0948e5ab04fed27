"""Checks of `manage.py check`: the setting ROCKETBOX, and what the apps' `consumers.py` declare."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage, Error, Warning, register

from . import handlers, options
from .sdk import InvalidOption


@register("rocketbox")
def check(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    return list(_of_the_setting()) + list(_of_handlers())


def _of_the_setting() -> Iterator[CheckMessage]:
    try:
        read = options.read()
        read.producer_of(read.make_client())
    except InvalidOption as error:
        yield Error(str(error), id="rocketbox.E001")
        return
    if not read.nameservers and not os.environ.get("NAMESRV_ADDR"):
        yield Warning(
            "No name server is configured, so nothing can be sent or consumed.",
            hint="Set ROCKETBOX = {'NAMESERVERS': 'host:9876'}, or the variable NAMESRV_ADDR.",
            id="rocketbox.W001",
        )


def _of_handlers() -> Iterator[CheckMessage]:
    from django.conf import settings

    try:
        groups = list(handlers.declared())
    except InvalidOption as error:
        yield Error(str(error), id="rocketbox.E002")
        return
    try:
        client = options.read().make_client()  # it connects to nothing before it is started
    except InvalidOption:
        return  # which the check of the setting says
    for group in groups:
        try:
            group.consumer_of(client)
        except InvalidOption as error:
            yield Error(str(error), obj=group.name, id="rocketbox.E002")
        for one in group.subscriptions:
            if one.once is not None and one.once not in settings.DATABASES:
                yield Error(
                    f"The handler of {one.topic} is to run once in the database {one.once!r}, which is not configured.",
                    obj=group.name,
                    id="rocketbox.E003",
                )
