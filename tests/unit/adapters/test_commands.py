"""External commands: logged, reported, and never left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typing_extensions import override

from specdeploy.adapters.commands import LocalRunner
from specdeploy.errors import CommandFailedError, ConfigError, MissingToolError
from specdeploy.events import Reporter


class Recording(Reporter):
    def __init__(self) -> None:
        self.lines: list[str] = []

    @override
    def command_output(self, line: str) -> None:
        self.lines.append(line)


def a_runner(reporter: Reporter | None = None) -> LocalRunner:
    return LocalRunner(reporter or Reporter(), environment=os.environ)


def run(script: str, log: Path, *words: str, reporter: Reporter | None = None) -> None:
    a_runner(reporter).run([sys.executable, "-c", script, *words], log=log)


def eventually(condition: Callable[[], bool]) -> bool:
    for _ in range(500):
        if condition():
            return True
        time.sleep(0.02)
    return False


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def test_output_goes_to_the_log_and_to_the_reporter(tmp_path: Path) -> None:
    reporter = Recording()
    script = "import sys; print('out'); sys.stdout.flush(); print('err', file=sys.stderr)"
    run(script, tmp_path / "log", reporter=reporter)
    assert reporter.lines == ["out", "err"]
    assert (tmp_path / "log").read_text().splitlines()[1:] == ["out", "err"]


def test_the_log_starts_with_a_command_that_can_be_pasted(tmp_path: Path) -> None:
    script = "import sys; print(sys.argv[1])"
    run(script, tmp_path / "log", "a b'c\"$HOME\n*")
    first, _, second = (tmp_path / "log").read_text().partition("\na b")
    again = subprocess.run(
        ["/bin/sh", "-c", first.removeprefix("$ ")], capture_output=True, text=True, check=False
    )
    assert second
    assert again.returncode == 0
    assert again.stdout.startswith("a b'c\"$HOME\n*")


def test_words_are_never_read_by_a_shell(tmp_path: Path) -> None:
    run("import sys; print(sys.argv[1])", tmp_path / "log", "$(touch made); `touch made`")
    assert "$(touch made)" in (tmp_path / "log").read_text()
    assert not (tmp_path / "made").exists()


def test_a_failure_carries_status_log_and_the_last_lines(tmp_path: Path) -> None:
    script = "for i in range(100): print('line', i)\nraise SystemExit(3)"
    with pytest.raises(CommandFailedError) as caught:
        run(script, tmp_path / "log")
    assert caught.value.status == 3
    assert caught.value.exit_code == 6
    assert caught.value.tail.splitlines()[-1] == "line 99"
    assert "line 79" not in str(caught.value)
    assert str(tmp_path / "log") in str(caught.value.hint)


def test_a_command_killed_by_the_kernel_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(CommandFailedError, match=r"signal 9 \(most likely the host ran out"):
        run("import os; os.kill(os.getpid(), 9)", tmp_path / "log")


@pytest.mark.parametrize("program", ["no-such-program", "/no/such/program"])
def test_a_missing_program_is_named(tmp_path: Path, program: str) -> None:
    with pytest.raises(MissingToolError, match=program):
        a_runner().run([program], log=tmp_path / "log")
    assert not (tmp_path / "log").exists()


def test_a_file_that_is_no_program_is_named(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("neither a binary nor a script")
    (tmp_path / "tool").chmod(0o755)
    with pytest.raises(MissingToolError, match=r"tool cannot be run: Exec format error"):
        a_runner().run([str(tmp_path / "tool")], log=tmp_path / "log")


def test_what_a_command_leaves_in_the_background_is_ended_with_it(tmp_path: Path) -> None:
    reporter = Recording()
    script = (
        "import subprocess, sys\n"
        "sleep = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "print(subprocess.Popen(sleep, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid)"
    )
    run(script, tmp_path / "log", reporter=reporter)
    assert eventually(lambda: not is_running(int(reporter.lines[0])))


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file/log"):
        run("", tmp_path / "file" / "log")


def test_output_that_is_not_text_is_kept(tmp_path: Path) -> None:
    run("import sys; sys.stdout.buffer.write(b'\\xff\\n')", tmp_path / "log")
    assert b"\xff" in (tmp_path / "log").read_bytes()


def test_the_environment_is_extended(tmp_path: Path) -> None:
    runner = a_runner()
    argv = [sys.executable, "-c", "import os; print(os.environ['ADDED'], 'PATH' in os.environ)"]
    runner.run(argv, log=tmp_path / "log", environment={"ADDED": "yes"})
    assert "yes True" in (tmp_path / "log").read_text()


def test_modules_of_the_current_folder_are_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    downloaded = tmp_path / "checkpoint"
    downloaded.mkdir()
    (downloaded / "json.py").write_text("raise SystemExit('ran foreign code')")
    monkeypatch.chdir(downloaded)
    (tmp_path / "logs").mkdir()
    argv = [sys.executable, "-m", "specdeploy.adapters.reference_convert", "--help"]
    a_runner().run(argv, log=tmp_path / "logs/log")


def test_an_interrupt_ends_the_whole_group(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid, flush=True); time.sleep(600)"
    )

    class Interrupting(Recording):
        @override
        def command_output(self, line: str) -> None:
            super().command_output(line)
            raise KeyboardInterrupt

    reporter = Interrupting()
    with pytest.raises(KeyboardInterrupt):
        run(script, tmp_path / "log", reporter=reporter)
    assert eventually(lambda: not is_running(int(reporter.lines[0])))


def test_a_command_that_ignores_the_polite_signal_is_ended_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specdeploy.adapters.commands.GRACE_S", 0.2)
    script = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print(os.getpid(), flush=True); time.sleep(600)"
    )
    pids: list[int] = []

    class Interrupting(Reporter):
        @override
        def command_output(self, line: str) -> None:
            pids.append(int(line))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(script, tmp_path / "log", reporter=Interrupting())
    assert not is_running(pids[0])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's prctl")
def test_a_command_ends_with_a_killed_build(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path\n"
        "from specdeploy.adapters.commands import LocalRunner\n"
        "from specdeploy.events import Reporter\n"
        "inner = 'import os, time; print(os.getpid(), flush=True); time.sleep(600)'\n"
        "runner = LocalRunner(Reporter(), environment=os.environ)\n"
        "runner.run([sys.executable, '-c', inner], log=Path(sys.argv[1]))"
    )
    log = tmp_path / "log"
    build = subprocess.Popen([sys.executable, "-c", script, str(log)])
    try:
        assert eventually(lambda: log.exists() and len(log.read_text().splitlines()) > 1)
        pid = int(log.read_text().splitlines()[-1])
        assert is_running(pid)
    finally:
        build.kill()
        build.wait()
    assert eventually(lambda: not is_running(pid))
