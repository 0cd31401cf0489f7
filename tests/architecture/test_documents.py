"""What the documents promise is there, and what is there is documented."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import pytest
from architecture.sources import PACKAGE, ROOT, package_files, parsed
from jsonschema import Draft202012Validator
from tiny_checkpoints import write_checkpoint

from specdeploy import cli, errors
from specdeploy.cli import COMMANDS
from specdeploy.schemas import SCHEMAS, json_schema, record_of

README = (ROOT / "README.md").read_text()
SCHEMA_FOLDER = ROOT / "docs" / "schema"

OUTPUTS = [
    (["init", "--target", "t", "--draft", "d", "-o", "new.yaml", "--force"], "started-file"),
    (["config"], "effective-settings"),
    (["schema", "--list"], "schema-list"),
    (["inspect", "t"], "inspection"),
    (["doctor"], "doctor-report"),
    (["check"], "check-report"),
    (["check", "--target", "t", "--draft", "other"], "check-report"),
    (["estimate", "--target", "t", "--gpu", "l4"], "estimate"),
    (["tune", "--gpu", "l4", "--acceptance", "0.7", "--workspace", "tuned"], "tuning-report"),
    (["build", "--dry-run"], "build-report"),
    (["build"], "build-report"),
    (["verify", ".specdeploy"], "verify-report"),
]


def command_of(name: str) -> click.Command:
    command = cli.cli.get_command(click.Context(cli.cli), name)
    assert command is not None
    return command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a pair, a draft of another size, and a settings file."""
    folder = tmp_path_factory.mktemp("documents")
    write_checkpoint(folder / "t", hidden=32, layers=2)
    write_checkpoint(folder / "d", seed=1)
    write_checkpoint(folder / "other", seed=2, hidden=64, layers=4)
    (folder / "specdeploy.yaml").write_text("target: {path: t}\ndraft: {path: d}\n")
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_the_readme_names_every_command(name: str) -> None:
    assert re.search(rf"(specdeploy |`){name}\b", README)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_an_example(name: str) -> None:
    last = inspect.cleandoc(command_of(name).help or "").split("\n\n")[-1]
    assert last.startswith("\b\nExample:")
    assert f"specdeploy {name}" in last


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_can_answer_in_json(name: str) -> None:
    options = {option for parameter in command_of(name).params for option in parameter.opts}
    assert "--json" in options


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained(name: str) -> None:
    options = [p for p in command_of(name).params if isinstance(p, click.Option)]
    assert [option.name for option in options if not option.help] == []


def _error_classes(root: type[errors.SpecdeployError]) -> list[type[errors.SpecdeployError]]:
    return [root, *(found for child in root.__subclasses__() for found in _error_classes(child))]


def test_the_readme_lists_every_exit_code() -> None:
    rows = re.findall(r"^\| ([\d, ]+) \|", README, re.MULTILINE)
    documented = {int(code) for row in rows for code in row.split(",")}
    raised = {found.exit_code for found in _error_classes(errors.SpecdeployError)[1:]}
    assert raised | {0, 70, 130} <= documented


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_is_valid_and_kept_in_docs(name: str) -> None:
    Draft202012Validator.check_schema(json_schema(name))
    assert json.loads((SCHEMA_FOLDER / f"{name}.json").read_text()) == json_schema(name)


def test_every_document_has_a_schema() -> None:
    documents = {
        f"specdeploy.core.{'.'.join(path.relative_to(PACKAGE / 'core').with_suffix('').parts)}"
        f":{node.name}"
        for path in package_files("core")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef) and "Document" in map(ast.unparse, node.bases)
    }
    described = {(record_of(name).__module__, record_of(name).__name__) for name in SCHEMAS}
    assert documents <= {f"{module}:{name}" for module, name in described}


def test_docs_keep_no_schema_of_nothing() -> None:
    assert {path.stem for path in SCHEMA_FOLDER.iterdir()} == set(SCHEMAS)


@pytest.mark.parametrize(("words", "schema"), OUTPUTS, ids=[" ".join(o[0]) for o in OUTPUTS])
def test_json_output_is_one_document_that_fits_the_kept_schema(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: Sequence[str],
    schema: str,
) -> None:
    monkeypatch.chdir(folder)
    cli.run([*words, "--json"])
    document = json.loads(capsys.readouterr().out)
    kept = json.loads((SCHEMA_FOLDER / f"{schema}.json").read_text())
    Draft202012Validator(kept).validate(document)


WRITTEN: list[tuple[str, Callable[[Path], Path]]] = [
    ("manifest", lambda workspace: next(workspace.glob("engines/*/target/manifest.json"))),
    ("repository", lambda workspace: workspace / "repository" / "repository.json"),
]


@pytest.mark.parametrize(("schema", "find"), WRITTEN, ids=[name for name, _ in WRITTEN])
def test_a_written_file_fits_the_kept_schema(
    folder: Path, schema: str, find: Callable[[Path], Path]
) -> None:
    assert cli.run(["build", str(folder / "specdeploy.yaml"), "-q"]) == 0
    kept = json.loads((SCHEMA_FOLDER / f"{schema}.json").read_text())
    Draft202012Validator(kept).validate(json.loads(find(folder / ".specdeploy").read_text()))
