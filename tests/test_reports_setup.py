"""Java and Spark are added by `script/server --reports`, the locks and the image, and nothing changes without them;
doctor and support bundles report both cases."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from appliance.console.reports.report_settings import ReportSettings
from appliance.doctor import reports
from appliance.doctor.diagnosis import Diagnosis
from spark_reports import machine
from spark_reports.machine import Missing
from tests.support.checkout import ROOT, Checkout, run
from tests.support.server import Server

LOCKS = ROOT / "requirements"
SPARK = {"numpy", "pandas", "py4j", "pyarrow", "pyspark"}


# --- the locks


def locked(name: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Return package -> (version, hashes) of a lock file."""
    found = re.findall(
        r"(?m)^([\w.-]+)==(\S+) \\\n((?:    --hash=\S+(?: \\)?\n)+)", (LOCKS / f"{name}.txt").read_text()
    )
    return {package: (version, frozenset(re.findall(r"sha256:\w{64}", hashes))) for package, version, hashes in found}


def test_each_lock_holds_those_before_it_and_only_reports_and_tests_hold_spark():
    before: dict = {}
    for name in ("base", "console", "reports", "test"):
        lock = locked(name)
        assert lock.items() >= before.items(), name
        assert all(hashes for _, hashes in lock.values())
        assert SPARK & lock.keys() == (SPARK if name in ("reports", "test") else set()), name
        before = lock


def test_the_locked_versions_are_those_that_nothing_is_missing_with():
    for name, (version, _) in locked("reports").items():
        if name in machine.PACKAGES:
            oldest, first_wrong = machine.PACKAGES[name]
            number = tuple(map(int, version.split(".")))
            assert number >= oldest, name
            assert not first_wrong or number < first_wrong, name


# --- script/server --reports


class Set(Checkout):
    """A checkout with its scripts and locks, whose .venv has the packages of base.txt. The locks are empty, so that
    nothing is fetched. `packages` pretends that the packages of reports are installed."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        for lock in ("console", "reports"):
            (self.directory / "requirements" / f"{lock}.txt").write_text("")
        self.tools = directory / "tools"
        self.tools.mkdir()
        self.packages(**{name: lock[0] for name, lock in locked("reports").items() if name in machine.PACKAGES})

    def packages(self, **versions: str) -> None:
        (site,) = self.directory.glob(".venv/lib/python*/site-packages")
        for name, version in versions.items():
            for earlier in site.glob(f"{name}-*.dist-info"):
                shutil.rmtree(earlier)
            place = site / f"{name}-{version}.dist-info"
            place.mkdir()
            (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")

    def serve(self, *arguments: str) -> list[str]:
        """Return the lines that `script/server` prints before the server's own help."""
        said = run("script/server", "--help", *arguments, cwd=self.directory, CC="/bin/false")  # quick
        before, usage, _ = said.partition("usage: rocketbox serve")
        assert usage, said
        return [line for line in before.splitlines() if not line.startswith("hot path:")]

    def reports(self, before: str = "") -> list[str]:
        """Return the output of script/reports on a machine without Java in the usual places."""
        words = f". script/environment; java_places=/nowhere; {before} . script/reports; echo goes on"
        bash = shutil.which("bash")
        assert bash is not None
        for tool in ("dirname", "df", "awk", "sed", "id", "cat", "bash", "env"):
            (self.tools / tool).symlink_to(shutil.which(tool) or "")
        said = run(
            bash, "-euo", "pipefail", "-c", words, cwd=self.directory, PATH=str(self.tools), JAVA_HOME="/nowhere"
        )
        return said.splitlines()

    def stamps(self) -> set[str]:
        return {path.name for path in (self.directory / ".venv").glob(".stamp-*")}


@pytest.fixture
def checkout(tmp_path) -> Set:
    return Set(tmp_path / "checkout")


COMMAND = "the command rocketbox is .venv/bin/rocketbox"
CONSOLE, REPORTS = (f"installing requirements/{name}.txt into .venv" for name in ("console", "reports"))


def test_without_it_nothing_but_the_console_is_installed(checkout):
    assert checkout.serve() == [CONSOLE, COMMAND]
    assert checkout.stamps() == {".stamp-console"}
    assert checkout.serve("--data-dir", "x") == []


def test_it_is_installed_once_and_stays_and_comes_up_to_date_without_being_asked(checkout):
    java, once, *rest = checkout.serve("--reports", "--data-dir", "x")
    assert java.startswith("reports: Java is there: /")
    assert once == "reports: Spark is downloaded once, some 550 MB, and takes 1 GB in .venv"
    assert rest == [CONSOLE, REPORTS, COMMAND]
    assert checkout.stamps() == {".stamp-console", ".stamp-reports"}
    assert checkout.serve() == [], "a later start has it, and does nothing"
    assert checkout.serve("--data-dir", "x", "--reports") == [java]
    with (checkout.directory / "requirements" / "reports.txt").open("a") as lock:
        lock.write("# as after a pull\n")
    assert checkout.serve() == [REPORTS]
    with (checkout.directory / "requirements" / "console.txt").open("a") as lock:
        lock.write("# as after a pull\n")
    assert checkout.serve() == [CONSOLE]
    assert checkout.stamps() == {".stamp-console", ".stamp-reports"}


def test_what_was_changed_in_the_environment_since_is_set_right_when_it_is_asked_for(checkout):
    assert REPORTS in checkout.serve("--reports")
    assert REPORTS not in checkout.serve("--reports")
    checkout.packages(pandas="3.0.1")
    assert checkout.serve() == [], "a start that does not ask is as quick as ever"
    assert checkout.serve("--reports")[-1] == REPORTS


def test_it_is_added_to_a_checkout_that_ran_without(checkout):
    assert checkout.serve() == [CONSOLE, COMMAND]
    *_, last = checkout.serve("--reports")
    assert last == REPORTS


def test_it_is_installed_beside_a_server_without_starting_one(checkout):
    said = run("script/server", "--reports", "--install-only", cwd=checkout.directory, CC="/bin/false")
    assert REPORTS in said
    assert "usage" not in said
    assert checkout.stamps() == {".stamp-console", ".stamp-reports"}


def test_the_server_itself_does_not_know_the_word(checkout):
    """The test omits `--help`, which `rocketbox serve` answers before it checks the other arguments."""
    checkout.serve("--reports")
    rocketbox = checkout.directory / ".venv" / "bin" / "rocketbox"
    done = subprocess.run([rocketbox, "serve", "--reports"], cwd=checkout.directory, capture_output=True, text=True)
    assert done.returncode != 0
    assert "--reports" in done.stderr
    script = (ROOT / "script" / "server").read_text()
    assert 'exec "$venv/bin/rocketbox" serve "${arguments[@]}"' in script


NO_JAVA = "reports: there is no Java 17 or newer, so Spark cannot run; RocketBox starts without it"


def test_java_is_installed_where_there_is_none(checkout):
    java = "#!/bin/sh\\necho 'openjdk version \\\"17.0.15\\\" 2025-04-15' >&2"
    making = f'printf "{java}" >{checkout.tools}/java; /bin/chmod +x {checkout.tools}/java'
    said = checkout.reports(f'install_packages() {{ say "installing $*"; {making}; }};')
    assert said[:2] == [
        "installing openjdk-17-jre-headless|openjdk-21-jre-headless|openjdk-25-jre-headless",
        f"reports: Java is there now: {checkout.tools}/java",
    ]


def test_where_java_cannot_be_installed_the_server_starts_and_that_is_said(checkout):
    said = checkout.reports()
    assert said[0].endswith("please install with your system's package manager: openjdk-17-jre-headless")
    assert said[1] == NO_JAVA
    assert said[-1] == "goes on"


def test_a_user_who_is_not_root_is_told_what_root_has_to_do(checkout):
    fakes = "id() { echo 1000; }; sudo() { return 1; }; apt-get() { :; };"
    said = checkout.reports(fakes)
    assert said[0].endswith("please install as root: apt-get install openjdk-17-jre-headless")
    assert said[1] == NO_JAVA


@pytest.mark.parametrize(("has", "asked"), [("17", "17"), ("21", "21"), ("25", "25"), ("none", "25")])
def test_the_first_java_that_the_system_has_is_asked_for(checkout, has, asked):
    fakes = (
        f"id() {{ echo 0; }}; apt-cache() {{ [[ $3 == *-{has}-* ]]; }}; "
        'env() { [[ $* != *install* ]] || echo "env $*" >&2; }; apt-get() { :; };'
    )
    said = "\n".join(checkout.reports(fakes))
    assert f"--no-install-recommends openjdk-{asked}-jre-headless" in said


def test_an_old_java_will_not_do(checkout):
    java = checkout.tools / "java"
    for version, enough in (("1.8.0_392", False), ("11.0.22", False), ("17.0.15", True), ("21", True)):
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
        java.chmod(0o755)
        words = f". script/environment; java_places=/nowhere; PATH={checkout.tools}:$PATH; find_java && echo $java"
        done = subprocess.run(["bash", "-c", words], cwd=checkout.directory, capture_output=True, text=True)
        assert (done.returncode == 0, done.stdout) == (enough, f"{java}\n" if enough else ""), version


def test_without_room_nothing_is_begun(checkout):
    (checkout.tools / "df").write_text("#!/bin/sh\necho x; echo x x x 900 x x\n")
    (checkout.tools / "df").chmod(0o755)
    words = f"PATH={checkout.tools}:$PATH; . script/environment; . script/reports; echo goes on"
    done = subprocess.run(["bash", "-euc", words], cwd=checkout.directory, capture_output=True, text=True)
    assert done.returncode == 1
    assert re.search(r"has 900 MiB free, and .venv needs 1536 for reports$", done.stderr)


def test_the_tests_have_it_all():
    text = (ROOT / "script" / "test").read_text()
    assert "ensure_venv console reports test\n" in text


# --- the image


def test_the_image_takes_the_same_lock():
    text = (ROOT / "Dockerfile").read_text()
    stage = text.partition("FROM slim AS reports")[2].partition("\nFROM ")[0].replace("\\\n", " ")
    words = " ".join(stage.split())
    assert "pip install --no-cache-dir --require-hashes --no-deps --no-build-isolation -r" in words
    assert "/opt/rocketbox/requirements/reports.txt" in words
    assert "COPY requirements/ /opt/rocketbox/requirements/" in words
    assert words.count("pip install") == 1
    assert "jre-headless" in words


# --- the settings of nightly runs


def test_the_page_tells_the_settings_and_their_defaults():
    text = (ROOT / "docs" / "spark.md").read_text().partition("| setting | default |")[2].partition("\n\n")[0]
    told = dict(re.findall(r"(?m)^\| `(\w+)` \| (?:`([^`]*)` )?\|", text))
    ours = {
        one.name: "" if default in ((), {}) else str(default).lower() if default in (True, False) else str(default)
        for one in dataclasses.fields(ReportSettings)
        for default in [getattr(ReportSettings(), one.name)]
    }
    assert told == ours


# --- what is said


def lines(missing: tuple[Missing, ...], is_installed: bool, monkeypatch) -> list[tuple[str, str, str]]:
    monkeypatch.setattr(machine, "what_is_missing", lambda: missing)
    monkeypatch.setattr(machine, "is_installed", lambda: is_installed)
    found = Diagnosis()
    reports.look_at_reports(found)
    return [(line.level, line.text, line.advice) for line in found.lines]


def test_doctor_says_what_is_missing_and_how_to_add_it(monkeypatch):
    java = Missing("java_missing", "checkout")
    ((level, text, advice),) = lines((java,), False, monkeypatch)
    assert (level, text) == ("ok", "Spark is not set up here; plain Python makes the reports, on one core.")
    assert "script/server --reports" in advice
    found = lines((java, Missing("memory_small", "memory", {"free": "1", "needed": "2"})), True, monkeypatch)
    assert [one[0] for one in found] == ["warn", "warn"]
    assert found[0][1:] == (java.what, java.how)


def test_doctor_says_what_reports_run_with(monkeypatch):
    ((level, text, advice),) = lines((), True, monkeypatch)
    assert (level, advice) == ("ok", "")
    assert re.fullmatch(r"PySpark 4\.3\.\d+ with Java \d+[\w.+-]* in /.+ makes reports\.", text)


def test_doctor_warns_of_a_wrong_java_home_that_is_passed_over(monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    machine.answers.forget()
    levels = [line[0] for line in lines((), True, monkeypatch)]
    assert levels == ["warn", "ok"]


def test_a_bundle_has_the_machine(tmp_path):
    rocketbox = Path(machine.sys.executable).with_name("rocketbox")
    target = tmp_path / "bundle.zip"
    run(rocketbox, "bundle", target, "--data-dir", tmp_path / "data", cwd=tmp_path)
    with zipfile.ZipFile(target) as archive:
        told = json.loads(archive.read("reports.json"))
    assert told["packages"].keys() == machine.PACKAGES.keys()
    assert told["packages"]["pyspark"].startswith("4.3.")
    assert told["java"]["version"]
    assert not [one for one in told["missing"] if "memory" not in one["what"]]


# --- the broker's process


def test_a_server_that_tells_of_reports_and_makes_bundles_loads_none_of_it(tmp_path):
    """Spark is installed where the tests run, so the server could import it."""
    assert machine.is_installed()
    admin = {"ADMIN_USER": "root", "ADMIN_PASSWORD": "Vogel-Nest-42-Kran"}
    data = tmp_path / "data"
    with Server(data, "--http-port", "0", roles="broker,namesrv,console", environment=admin) as server:
        words = ("token", "create", "look", "--role", "admin", "--json", "--data-dir", data)
        rocketbox = Path(sys.executable).with_name("rocketbox")
        made = subprocess.run([rocketbox, *words], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
        token = json.loads(made.stdout)["secret"]
        for path in ("reports", "reports/runs", "reports/settings"):
            wanted = Request(
                f"http://{server.ready['http']}/api/v1/{path}", headers={"Authorization": f"Bearer {token}"}
            )
            with urlopen(wanted, timeout=30) as answer:
                told = json.load(answer)
            if path == "reports":
                assert not [one for one in told["missing"] if "memory" not in str(one)]
        maps = Path(f"/proc/{server.ready['pid']}/maps").read_text()
        assert "msgspec" in maps
        assert not re.findall(r"numpy|pyarrow|pandas|libjvm|site-packages/pyspark", maps)
