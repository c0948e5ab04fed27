"""Complete programs for each client, a producer and a consumer, with this server's address in them, and the commands
that run them. The tests run or compile all of them. Texts: `snippet_texts.py`.

A program names its user where access control is on, and reads the user's secret from the environment (SECRET); it
encrypts where TLS is served, and trusts the certificate in a file beside it (CERTIFICATE).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from . import snippet_texts as texts

TOPIC = "HelloRocketBox"
GROUP = "hello-consumer"
#: Variable of the environment with the user's secret, as Apache's command line tools and our client name it.
SECRET = "ROCKETMQ_SECRET_KEY"
#: File beside the program: the certificate that it trusts.
CERTIFICATE = "rocketbox.pem"
#: In place of a user's name that was not chosen.
ANY_USER = "YOUR-USER"
LANGUAGES = ("java", "java4", "go", "python", "cpp", "python-cpp")
_TOPIC_NAME = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")
_USER_NAME = re.compile(r"[a-zA-Z0-9._-]{1,64}")


@dataclass(frozen=True, slots=True)
class Door:
    """The way in for clients. user: whose requests the programs sign; "" if none has to. tls: they encrypt.
    certificate: PEM text of the certificate that they trust; "" if it is not known here."""

    user: str = ""
    tls: bool = False
    certificate: str = ""


@dataclass(frozen=True, slots=True)
class Project:
    """The files of one directory, and the commands to type there. key: part of addresses and ids. needs: the programs
    that must be installed. prepare: run once first; "" for nothing. produce: sends one message and ends. consume:
    prints messages as they come. notes: what a reader has to know, "wheel", "no_tls", "trust"."""

    key: str
    name: str
    needs: str
    files: tuple[tuple[str, str], ...]
    prepare: str
    produce: str
    consume: str
    notes: tuple[str, ...] = ()

    @property
    def certificate(self) -> str:
        """Return the certificate that it trusts, as PEM; "" without one."""
        return dict(self.files).get(CERTIFICATE, "")

    @property
    def signs(self) -> bool:
        """True if it needs a secret."""
        return any(SECRET in text for _, text in self.files)

    def file(self, name: str) -> str:
        """Return the text of one of its files."""
        return dict(self.files)[name]


def projects(namesrv: str, topic: str = TOPIC, door: Door | None = None) -> list[Project]:
    """Return, for each client, a producer that sends one message to the topic, and a consumer of it. namesrv: the
    name server's host:port.

    Raises ValueError for an invalid name of a topic or of a user: it would become text of a program.
    """
    door = door or Door()
    for name, pattern in ((topic, _TOPIC_NAME), (door.user or ANY_USER, _USER_NAME)):
        if not pattern.fullmatch(name):
            raise ValueError(name)
    values = {"namesrv": namesrv, "topic": topic, "group": GROUP, "user": door.user}
    values |= {"secret": SECRET, "certificate": CERTIFICATE}
    return [
        _java("java", "Java 5.x", "5.3.3", values, door),
        _java("java4", "Java 4.x", "4.9.8", values, door),
        _go(values, door),
        _python(values, door),
        _cpp(values, door),
        _binding(values, door),
    ]


def _trusted(door: Door) -> tuple[tuple[str, str], ...]:
    return ((CERTIFICATE, door.certificate),) if door.tls and door.certificate else ()


def _notes(door: Door, *notes: str) -> tuple[str, ...]:
    return (*notes, "trust") if door.tls else notes


def _java(key: str, name: str, version: str, values: Mapping[str, str], door: Door) -> Project:
    signs = bool(door.user)
    acl = texts.POM_ACL if signs and version.startswith("4.") else ""
    filled = {
        "imports": texts.JAVA_IMPORTS if signs else "",
        "hook": texts.JAVA_HOOK % values if signs else "",
        "imports_of_consumer": texts.JAVA_ALLOCATE_IMPORT if signs else "",
        "allocate": texts.JAVA_ALLOCATE if signs else "",
        "trust": texts.JAVA_TRUST % values if door.tls else "",
    }

    def program(text: str, kind: str) -> str:
        encrypt = f"        {kind}.setUseTLS(true);\n" if door.tls else ""
        return text % {**values, **filled, "encrypt": encrypt}

    return Project(
        key,
        name,
        "JDK 11, Maven",
        (
            ("pom.xml", texts.POM % {"version": version, "acl": acl % {"version": version} if acl else ""}),
            ("src/main/java/Producer.java", program(texts.JAVA_PRODUCER, "producer")),
            ("src/main/java/Consumer.java", program(texts.JAVA_CONSUMER, "consumer")),
            *_trusted(door),
        ),
        "mvn -q compile",
        "mvn -q exec:java -Dexec.mainClass=Producer",
        "mvn -q exec:java -Dexec.mainClass=Consumer",
        _notes(door),
    )


def _go(values: Mapping[str, str], door: Door) -> Project:
    def program(text: str, kind: str) -> str:
        signs = {"imports": texts.GO_IMPORTS, "credentials": texts.GO_CREDENTIALS % {**values, "kind": kind}}
        return text % {**values, **(signs if door.user else {"imports": "", "credentials": ""})}

    return Project(
        "go",
        "Go v2",
        "Go 1.19",
        (
            ("go.mod", texts.GO_MOD),
            ("producer/main.go", program(texts.GO_PRODUCER, "producer")),
            ("consumer/main.go", program(texts.GO_CONSUMER, "consumer")),
        ),
        "go mod tidy",
        "go run ./producer",
        "go run ./consumer",
        ("no_tls",) if door.tls else (),
    )


def _python(values: Mapping[str, str], door: Door) -> Project:
    names = ["Client", *(["Credentials"] if door.user else []), *(["Tls"] if door.tls else [])]
    imports = ("import os\n\n" if door.user else "") + f"from rocketbox import {', '.join(names)}\n"
    options = [texts.PYTHON_CREDENTIALS] * bool(door.user) + [texts.PYTHON_TLS] * door.tls
    client = "".join(f"    {one % values},\n" for one in (texts.PYTHON_NAMESRV, *options))
    client = f"\n{client}" if options else texts.PYTHON_NAMESRV % values
    filled = {**values, "imports": imports, "client": client}
    return Project(
        "python",
        "Python",
        "Python 3.11",
        (
            ("producer.py", texts.PYTHON_PRODUCER % filled),
            ("consumer.py", texts.PYTHON_CONSUMER % filled),
            *_trusted(door),
        ),
        "python3 -m venv .venv && .venv/bin/pip install ../rocketbox_client-*.whl",
        ".venv/bin/python producer.py",
        ".venv/bin/python consumer.py",
        _notes(door, "wheel"),
    )


def _cpp(values: Mapping[str, str], door: Door) -> Project:
    def program(text: str, kind: str) -> str:
        lines = texts.CPP_CREDENTIALS * bool(door.user) + texts.CPP_TLS * door.tls
        return text % {**values, "credentials": lines % {**values, "kind": kind}}

    trust = (("tls.properties", texts.CPP_TLS_FILE % values),) if door.tls else ()
    build = "g++ -std=c++11 -o {0} {0}.cpp -lrocketmq -lpthread -lz -ldl -lrt"
    return Project(
        "cpp",
        "C++",
        "g++, rocketmq-client-cpp 2.2.0",
        (
            ("producer.cpp", program(texts.CPP_PRODUCER, "producer")),
            ("consumer.cpp", program(texts.CPP_CONSUMER, "consumer")),
            *trust,
            *_trusted(door),
        ),
        f"{build.format('producer')} && {build.format('consumer')}",
        "./producer",
        "./consumer",
        _notes(door),
    )


def _binding(values: Mapping[str, str], door: Door) -> Project:
    def program(text: str, kind: str) -> str:
        if not door.user:
            return text % {**values, "import": "", "credentials": ""}
        # A blank line before what is not Python's own.
        first = "import os\n" if kind == "consumer" else "import os\n\n"
        return text % {**values, "import": first, "credentials": texts.BINDING_CREDENTIALS % {**values, "kind": kind}}

    return Project(
        "python-cpp",
        "Python, by the C++ client",
        "Python 3, Linux",
        (
            ("requirements.txt", texts.BINDING_REQUIREMENTS),
            ("producer.py", program(texts.BINDING_PRODUCER, "producer")),
            ("consumer.py", program(texts.BINDING_CONSUMER, "consumer")),
        ),
        "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt",
        ".venv/bin/python producer.py",
        ".venv/bin/python consumer.py",
        ("no_tls",) if door.tls else (),
    )


def shell_of(project: Project) -> str:
    """Return one shell script that creates the directory and its files, and runs `prepare`."""
    directory = f"hello-{project.key}"
    lines = [f"mkdir -p {directory} && cd {directory}"]
    for name, text in project.files:
        if "/" in name:
            lines.append(f"mkdir -p {name.rpartition('/')[0]}")
        lines.append(f"cat > {name} <<'END'\n{text}END")
    if project.prepare:
        lines.append(project.prepare)
    return "\n".join(lines) + "\n"
