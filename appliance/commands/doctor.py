"""`rocketbox doctor`: checks a whole installation; a broker may be running. Changes nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from ..doctor.audit import look_at_audit_log
from ..doctor.backups import look_at_backups
from ..doctor.certificates import look_at_certificate
from ..doctor.diagnosis import FAIL, WARN, Diagnosis
from ..doctor.machine import look_at_machine
from ..doctor.place import existing, look_at_place, look_at_ports
from ..doctor.replication import look_at_replication
from ..doctor.reports import look_at_reports
from ..doctor.store import look_at_store, open_store
from ..engine.errors import StartError

USAGE = """\
usage: rocketbox doctor [--json] [options of serve, as --data-dir DIR or -c FILE]

Checks configuration, directories, disk, ports, certificates, kernel, clock, store, audit log and what reports need, and
says what to do about each problem. Changes nothing. Exit status: 0 a broker can run, 1 it cannot or something is
damaged, 2 the command is wrong."""


def run(arguments: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    if {"--help", "-h"} & set(arguments):
        print(USAGE)
        return 0
    as_json = "--json" in arguments
    found = examine([argument for argument in arguments if argument != "--json"])
    if as_json:
        print(json.dumps([line._asdict() for line in found.lines], indent=1))
    else:
        for line in found.lines:
            print(line)
        failed, warned = found.count(FAIL), found.count(WARN)
        print(f"{len(found.lines)} checks: {failed} failed, {warned} warnings" if failed + warned else "No problems.")
    return 1 if found.count(FAIL) else 0


def examine(arguments: Sequence[str]) -> Diagnosis:
    """Check everything that the options of `serve` name."""
    from ..command_line import load

    found = Diagnosis()
    try:
        config, options = load(arguments, os.environ)
    except StartError as error:
        found.fail("config", str(error), "rocketbox serve does not start with it either")
        try:
            config, options = load([], {})
        except StartError:
            return found
        look_at_machine(found, existing(config.data_dir), console=True)
        return found
    for notice in options.notices:
        found.warn("config", notice, "remove them if no other program reads this file")
    if not options.notices:
        found.ok("config", f"The options are valid; the roles are {', '.join(_roles(config.roles, options.console))}.")
    look_at_machine(found, existing(config.data_dir), options.console)
    store = open_store(found, config) if "broker" in config.roles else None
    try:
        holder = None if store is None else store.lock_holder()
        look_at_place(found, config, running=holder is not None)
        look_at_ports(found, config, options, holder)
        served = config.broker.tls_mode != "disabled" and (config.broker.tls_cert_file, config.broker.tls_key_file)
        for pair in dict.fromkeys(one for one in (served, options.https) if one):
            look_at_certificate(found, *pair)
        if store is not None:
            look_at_store(found, store, config)
        if "broker" in config.roles:
            look_at_replication(found, config)
        if options.console:
            look_at_audit_log(found, config.data_dir / "rocketbox")
            look_at_backups(found, config.data_dir / "rocketbox")
            look_at_reports(found)
    finally:
        if store is not None:
            store.close()
    return found


def _roles(roles: frozenset[str], console: bool) -> list[str]:
    return sorted({*roles, *(["console"] if console else [])})
