"""`tessella serve`: what it shows while a run writes, and what it refuses."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tessella.cli.main import main
from tessella.report.run_reading import details, found, new_metrics, summary
from tessella.report.serving import RunServer, own_hosts

NASTY = "</script><img src=x onerror=alert(1)>"


def make_run(folder: Path, records: list[dict[str, Any]], **config: Any) -> Path:
    (folder / "figures").mkdir(parents=True)
    content = {"config": config, "environment": {"processor": "a machine", "cores": 2}}
    (folder / "config.json").write_text(json.dumps(content))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def append(run: Path, text: str) -> None:
    with (run / "metrics.jsonl").open("a") as lines:
        lines.write(text)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """One finished run, one that is writing in a folder within, and a page that belongs to neither."""
    root = tmp_path / "runs"
    finished = make_run(root / "vanilla", [{"step": k, "loss": 2 / (k + 1)} for k in range(20)], model="vit")
    (finished / "result.json").write_text(json.dumps({"accuracy": 0.75}))
    drawing = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20"><rect width="40" height="20"/></svg>'
    (finished / "figures" / "loss.svg").write_text(drawing)
    records = [{"step": k, "train_loss": 1 / (k + 1), "test_loss": 2 / (k + 1)} for k in range(3)]
    make_run(root / "sweep" / "positional", records, model=NASTY, rate={"base": 0.1})
    (root / "report.html").write_text("<!DOCTYPE html><title>Report</title><h1>A report</h1>")
    (tmp_path / "secret.json").write_text("{}")
    return root


@pytest.fixture
def server(runs: Path) -> Iterator[RunServer]:
    with RunServer(runs, 0) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def ask(server: RunServer, path: str, host: str | None = None, method: str = "GET") -> tuple[int, str, dict[str, str]]:
    """One request, its path sent as it is written here."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)) as connection:
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", f"127.0.0.1:{server.port}" if host is None else host)
        connection.endheaders()
        response = connection.getresponse()
        return response.status, response.read().decode(), dict(response.getheaders())


def test_runs_and_pages_are_found_with_their_states(runs: Path) -> None:
    os.utime(runs / "vanilla" / "config.json", (0, 0))
    told = found(runs)
    states = {run["path"]: run["state"] for run in told["runs"]}
    assert states == {"vanilla": "finished", "sweep/positional": "running"}
    assert told["pages"] == ["report.html"]
    for name in ("config.json", "metrics.jsonl"):
        os.utime(runs / "sweep" / "positional" / name, (0, 0))
    assert summary(runs, runs / "sweep" / "positional")["state"] == "stopped"


@pytest.mark.parametrize("content", ["{", "[]", "[1]", "3", ""])
def test_a_run_whose_configuration_cannot_be_read_says_so(runs: Path, content: str) -> None:
    run = runs / "sweep" / "positional"
    (run / "config.json").write_text(content)
    assert summary(runs, run)["state"] == "unreadable"
    assert details(runs, run)["config"] == {}


def test_metrics_are_read_on_from_where_they_ended(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [{"step": 0, "loss": 1.5}])
    first = new_metrics(run / "metrics.jsonl")
    assert first.records == [{"step": 0.0, "loss": 1.5}]
    assert first.restarted
    append(run, '{"step": 1, "loss": 1.2')
    half = new_metrics(run / "metrics.jsonl", first.cursor)
    assert (half.records, half.restarted) == ([], False)
    append(run, "5}\n")
    whole = new_metrics(run / "metrics.jsonl", half.cursor)
    assert whole.records == [{"step": 1.0, "loss": 1.25}]
    assert new_metrics(run / "metrics.jsonl", whole.cursor).records == []


def test_metrics_that_were_cut_back_are_read_again(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [{"step": k} for k in range(5)])
    end = new_metrics(run / "metrics.jsonl").cursor
    other = tmp_path / "other"
    other.write_text('{"step": 0}\n')
    os.replace(other, run / "metrics.jsonl")
    again = new_metrics(run / "metrics.jsonl", end)
    assert again.restarted
    assert again.records == [{"step": 0.0}]
    (run / "metrics.jsonl").unlink()
    assert new_metrics(run / "metrics.jsonl", again.cursor).restarted


def test_a_record_may_hold_anything(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [{"step": 1, "loss": float("nan"), "a": {"b": 2}, "name": "x", "list": [1]}])
    append(run, "not JSON\n[1, 2]\n")
    append(run, json.dumps({"step": 10**400}) + "\n")
    assert new_metrics(run / "metrics.jsonl").records == [{"step": 1.0, "loss": None, "a.b": 2.0}]


@pytest.mark.parametrize("host", ["", "example.org", "127.0.0.1.example.org", "127.0.0.1", "example.org:80"])
def test_a_request_under_another_name_is_refused(server: RunServer, host: str) -> None:
    for path in ("/", "/api/runs", "/files/report.html"):
        status, text, _ = ask(server, path, host)
        assert status == 421
        assert text.startswith("Host: got ")
    assert ask(server, "/api/runs", f"localhost:{server.port}")[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        *("../secret.json", "%2e%2e/secret.json", "sweep/..%2f..%2fsecret.json", "..%5csecret.json", "//etc/passwd"),
        *(
            "%00",
            "link.json",
            "linked/secret.json",
            ".hidden.json",
            "sweep",
            "vanilla/weights.safetensors",
            "none.html",
            "a" * 5000,
            "a" * 5000 + ".html",
        ),
    ],
)
def test_nothing_outside_the_folder_is_given_out(server: RunServer, runs: Path, path: str) -> None:
    (runs / "link.json").symlink_to(runs.parent / "secret.json")
    (runs / "linked").symlink_to(runs.parent)
    (runs / ".hidden.json").write_text("{}")
    (runs / "vanilla" / "weights.safetensors").write_bytes(b"weights")
    status, text, _ = ask(server, f"/files/{path}")
    assert status == 404
    assert text.startswith("path: got ")
    assert ask(server, f"/api/run?at={path}")[0] == 404


def test_browsers_leave_port_80_out_of_host() -> None:
    assert {"127.0.0.1", "localhost", "127.0.0.1:80", "localhost:80"} == set(own_hosts(80))
    assert {"127.0.0.1:8080", "localhost:8080"} == set(own_hosts(8080))


def test_it_only_reads(server: RunServer) -> None:
    for method in ("POST", "PUT", "DELETE"):
        assert ask(server, "/api/runs", method=method)[0] == 501
    status, text, headers = ask(server, "/api/runs", method="HEAD")
    assert (status, text) == (200, "")
    assert int(headers["Content-Length"]) > 0
    assert server.server_address[0] == "127.0.0.1"


def test_pages_from_runs_are_kept_apart(server: RunServer) -> None:
    _, text, headers = ask(server, "/files/report.html")
    assert "A report" in text
    assert headers["Content-Security-Policy"].startswith("sandbox allow-scripts")
    assert "allow-same-origin" not in headers["Content-Security-Policy"]


def test_wrong_usage_is_one_line(runs: Path, server: RunServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(runs / "nowhere"), "--port", "0"]) == 2
    assert "expected a folder with runs in it" in capsys.readouterr().err
    assert main(["serve", str(runs), "--port", str(server.port)]) == 2
    assert f"port: got {server.port}, which cannot be had" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["serve", str(runs), "--port", "70000"])
    assert "expected a whole number from 0 to 65535" in capsys.readouterr().err


def test_the_command_serves_until_it_is_stopped(runs: Path) -> None:
    command = [sys.executable, "-m", "tessella", "serve", str(runs), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as served:
        assert served.stdout is not None
        assert served.stderr is not None
        address = re.search(r"http://127\.0\.0\.1:(\d+)/", served.stdout.readline())
        assert address is not None
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", int(address[1]), timeout=10)) as connection:
            connection.request("GET", "/")
            assert b"Runs in runs" in connection.getresponse().read()
        served.send_signal(signal.SIGINT)
        assert served.wait(10) == 0
        assert served.stderr.read() == ""


def test_serving_waits_for_no_torch() -> None:
    code = "import sys, tessella.cli.main, tessella.cli.serving; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.fixture
def opened(browser: Any, server: RunServer) -> Iterator[Any]:
    """The list, failing the test where it logs an error or asks another server for anything."""
    view = browser.new_page(viewport={"width": 1280, "height": 900})
    wrong: list[str] = []
    view.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    view.on("pageerror", lambda error: wrong.append(str(error)))
    here = (server.address, "data:", "blob:")
    view.on("request", lambda request: None if request.url.startswith(here) else wrong.append(request.url))
    view.goto(server.address)
    view.wait_for_selector("#runs tbody tr")
    yield view
    view.close()
    assert wrong == []


@pytest.mark.browser
def test_the_curves_of_a_run_grow_as_it_writes(opened: Any, runs: Path) -> None:
    assert "2 runs: 1 running, 1 finished" in opened.inner_text("#status")
    opened.click("text=sweep/positional")
    opened.wait_for_selector("#charts svg")
    assert opened.inner_text("#charts .title") == "loss"
    assert "step 2" in opened.inner_text("#at-name")
    path = "() => document.querySelector('#charts .view > svg > path').getAttribute('d')"
    short = opened.evaluate(path)
    run = runs / "sweep" / "positional"
    append(run, '{"step": 3, "train_loss": 0.2, "test_loss": 0.4}\n{"step": 4, "train_lo')
    opened.wait_for_function("() => document.getElementById('at-name').textContent === 'step 3'", timeout=5000)
    assert "train_loss 0.2" in opened.inner_text("#charts .legend")
    assert opened.evaluate(path) != short
    append(run, 'ss": 0.1, "test_loss": 0.3}\n')
    opened.wait_for_function("() => document.getElementById('at-name').textContent === 'step 4'", timeout=5000)
    opened.locator("#at").focus()
    opened.keyboard.press("Home")
    assert "train_loss 1" in opened.inner_text("#charts .legend")
    opened.check("#log")
    assert "train_loss 1" in opened.inner_text("#charts .legend")
    assert NASTY in opened.inner_text("#details")
    assert "rate.base" in opened.inner_text("#details")
    (run / "result.json").write_text("{}")
    opened.wait_for_function(
        "() => document.getElementById('status').textContent.includes('has finished')", timeout=5000
    )


@pytest.mark.browser
def test_a_new_run_appears_and_two_are_compared(opened: Any, runs: Path) -> None:
    opened.check("input[aria-label='Compare vanilla']")
    make_run(runs / "third", [{"step": 0, "loss": 3.0}, {"step": 30, "loss": 1.0}])
    opened.wait_for_selector("text=third")
    assert opened.is_checked("input[aria-label='Compare vanilla']")
    opened.check("input[aria-label='Compare third']")
    opened.click("#compare")
    opened.wait_for_selector("#charts svg")
    legend = opened.inner_text("#charts .legend")
    assert "vanilla" in legend
    assert "third 1" in legend
    assert opened.locator("#charts svg[role=img]").count() == 1


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_results_figures_and_pages_fit_a_telephone(opened: Any, scheme: str) -> None:
    opened.emulate_media(color_scheme=scheme)
    opened.set_viewport_size({"width": 390, "height": 800})
    assert opened.evaluate("() => document.documentElement.scrollWidth") <= 390
    opened.click("text=vanilla")
    opened.wait_for_selector("#charts svg")
    assert opened.evaluate("() => document.documentElement.scrollWidth") <= 390
    assert "0.75" in opened.inner_text("#details")
    opened.locator("#details img").scroll_into_view_if_needed()
    opened.wait_for_function("() => document.querySelector('#details img').naturalWidth === 40")
    ground = "() => getComputedStyle(document.body).backgroundColor"
    before = opened.evaluate(ground)
    opened.click("#theme")
    assert opened.evaluate(ground) != before
    opened.click("text=All runs")
    opened.click("text=report.html")
    assert opened.inner_text("h1") == "A report"
