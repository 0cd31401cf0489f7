"""Rendering is strict: unknown, unused, empty and unescaped values never reach a file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from specdeploy.adapters import templates, triton_config
from specdeploy.adapters.templates import StrictRenderer, template_root
from specdeploy.core.repository import FileToCopy, FileToRender, RepositoryPlan
from specdeploy.errors import ArtifactError

CONFIG = """name: "leaf"
backend: "python"
max_batch_size: {{ batch }}
parameters: { key: "folder" value: { string_value: "{{ folder }}" } }
"""

NASTY = (
    "0,1",
    "a:b",
    "my engines",
    'a " quote',
    "an ' apostrophe",
    "back\\slash",
    "new\nline",
    "tab\tand\x01control\x7f",
    "naïve ☃ 🦙",
    "line\u2028separator\x85next",
    "# comment",
    "\\n",
    "yes",
    "1e3",
    "",
)


def a_plan(*renders: FileToRender, **changes: object) -> RepositoryPlan:
    plan = RepositoryPlan(
        shape="engine",
        method="ngram",
        models=["leaf"],
        entry_model="leaf",
        streaming=True,
        draft_length=4,
        renders=list(renders),
        copies=[],
    )
    return plan.evolve(**changes)


def rendered(
    root: Path, text: str, context: dict[str, object], *, name: str = "leaf/config.pbtxt"
) -> str:
    template = root / f"{Path(name).name}.j2"
    template.write_text(text)
    item = FileToRender(path=name, template=template.name, context=context)
    ((path, content),) = StrictRenderer(root).render(a_plan(item), must_exist=False)
    assert path == name
    return content.decode()


def refusal(root: Path, text: str, context: dict[str, object], **options: str) -> str:
    with pytest.raises(ArtifactError) as caught:
        rendered(root, text, context, **options)
    return str(caught.value)


@pytest.mark.parametrize("value", NASTY)
def test_a_string_survives_the_way_through_config_pbtxt(tmp_path: Path, value: str) -> None:
    text = rendered(tmp_path, CONFIG, {"batch": 4, "folder": value})
    config = text_format.Parse(text, model_config_pb2.ModelConfig())
    assert config.parameters["folder"].string_value == value


@pytest.mark.parametrize("value", [*NASTY, 3, 2.5, True, ["a", "ü"], {"a": {"b": "c\u2029"}}])
def test_a_value_survives_the_way_through_yaml(tmp_path: Path, value: object) -> None:
    text = rendered(tmp_path, "key: {{ value }}\n", {"value": value}, name="model.yaml")
    assert yaml.safe_load(text) == {"key": value}


def test_booleans_are_written_as_protobuf_reads_them(tmp_path: Path) -> None:
    text = 'name: "leaf"\nmodel_transaction_policy { decoupled: {{ flag }} }\n'
    assert "decoupled: true" in rendered(tmp_path, text, {"flag": True})


def test_an_undefined_name_is_refused_with_its_line(tmp_path: Path) -> None:
    message = refusal(tmp_path, CONFIG, {"folder": "x"})
    assert message == "config.pbtxt.j2:3: batch is not given"


def test_an_undefined_attribute_is_refused_with_its_line(tmp_path: Path) -> None:
    message = refusal(tmp_path, 'name: "leaf"\n{{ models.draft }}\n', {"models": {"target": 1}})
    assert "config.pbtxt.j2:2:" in message
    assert "draft" in message


def test_a_name_that_no_template_uses_is_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path, CONFIG, {"batch": 1, "folder": "x", "typo": 1})
    assert message == "config.pbtxt.j2: nothing uses typo"


@pytest.mark.parametrize(
    ("context", "where"),
    [
        ({"batch": 1, "folder": None}, "config.pbtxt.j2: folder"),
        ({"batch": 1, "folder": {"deep": [1, None]}}, "config.pbtxt.j2: folder: deep[1]"),
    ],
)
def test_none_is_refused_wherever_it_hides(
    tmp_path: Path, context: dict[str, object], where: str
) -> None:
    assert refusal(tmp_path, CONFIG, context) == f"template {where}: the value is None"


def test_an_expression_that_yields_none_is_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path, 'name: "leaf"\n{{ x.get("gone") }}', {"x": {"a": 1}})
    assert "config.pbtxt.j2:2: a value is None" in message


@pytest.mark.parametrize("mark", ["${slots}", "{{ slots }}", "{% raw %}"])
def test_an_unfilled_placeholder_is_refused_with_its_line(tmp_path: Path, mark: str) -> None:
    message = refusal(tmp_path, CONFIG, {"batch": 1, "folder": mark})
    assert message.startswith("leaf/config.pbtxt:4:")
    assert "left unfilled" in message


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('name: "leaf"\nmax_batch_sise: 1\n', "leaf/config.pbtxt:2:1"),
        ('name: "leaf"\nmax_batch_size: many\n', "leaf/config.pbtxt:2:17"),
        ('name: "twig"\n', "the name is 'twig', its folder is 'leaf'"),
    ],
)
def test_a_config_that_triton_would_not_read_is_refused(
    tmp_path: Path, text: str, complaint: str
) -> None:
    assert complaint in refusal(tmp_path, text, {})


def test_yaml_that_does_not_parse_is_refused(tmp_path: Path) -> None:
    assert "model.yaml" in refusal(tmp_path, "a: [1\n", {}, name="model.yaml")


def test_a_template_with_broken_syntax_is_refused_with_its_line(tmp_path: Path) -> None:
    assert "config.pbtxt.j2:2:" in refusal(tmp_path, "a\n{% if %}\n", {})


def test_a_kind_of_file_that_cannot_be_escaped_is_refused(tmp_path: Path) -> None:
    assert "cannot" not in rendered(tmp_path, "a: 1\n", {}, name="model.yaml")
    assert "can be escaped" in refusal(tmp_path, "x", {}, name="run.sh")


def test_a_number_that_json_lacks_is_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path, "a: {{ x }}\n", {"x": float("nan")}, name="model.yaml")
    assert "has no JSON form" in message


def test_a_missing_template_is_refused_by_name(tmp_path: Path) -> None:
    plan = a_plan(FileToRender(path="leaf/config.pbtxt", template="gone.pbtxt.j2", context={}))
    with pytest.raises(ArtifactError, match=r"gone\.pbtxt\.j2"):
        list(StrictRenderer(tmp_path).render(plan))


def test_a_copied_file_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_bytes(b"f'{{x}} ${y}'\n")
    plan = a_plan(copies=[FileToCopy(path="leaf/1/model.py", source="model.py")])
    assert list(StrictRenderer(tmp_path).render(plan)) == [("leaf/1/model.py", b"f'{{x}} ${y}'\n")]


def a_plan_that_names(root: Path, path: Path, *, listed: Path | None) -> RepositoryPlan:
    (root / "config.pbtxt.j2").write_text(CONFIG)
    item = FileToRender(
        path="leaf/config.pbtxt",
        template="config.pbtxt.j2",
        context={"batch": 1, "folder": str(path)},
    )
    return a_plan(item, absolute_paths=[str(listed)] if listed else [])


@pytest.mark.parametrize("name", ["gone", "gone/deep"])
def test_a_path_that_does_not_exist_is_refused(tmp_path: Path, name: str) -> None:
    plan = a_plan_that_names(tmp_path, tmp_path / name, listed=tmp_path / "gone")
    with pytest.raises(ArtifactError, match="which does not exist"):
        list(StrictRenderer(tmp_path).render(plan))
    assert list(StrictRenderer(tmp_path).render(plan, must_exist=False))


def test_a_missing_file_below_a_listed_folder_is_refused(tmp_path: Path) -> None:
    plan = a_plan_that_names(tmp_path, tmp_path / "gone", listed=tmp_path)
    with pytest.raises(ArtifactError, match="which does not exist"):
        list(StrictRenderer(tmp_path).render(plan))


@pytest.mark.parametrize("listed", [None, "fold"])
def test_a_path_that_verify_would_not_know_of_is_refused(
    tmp_path: Path, listed: str | None
) -> None:
    known = tmp_path / listed if listed else None
    plan = a_plan_that_names(tmp_path, tmp_path / "folder", listed=known)
    with pytest.raises(ArtifactError, match="which the plan does not list"):
        list(StrictRenderer(tmp_path).render(plan, must_exist=False))


def test_a_relative_path_in_the_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="which is not absolute"):
        list(StrictRenderer(tmp_path).render(a_plan(absolute_paths=["engines/target"])))


def test_rendering_loads_of_tritonclient_only_the_protobuf_module(tmp_path: Path) -> None:
    script = (
        "import sys; from specdeploy.adapters.triton_config import parse_model_config\n"
        "parse_model_config('name: \"leaf\"', 'leaf/config.pbtxt')\n"
        "print(*[m for m in sys.modules if m.split('.')[0] in ('tritonclient', 'grpc')])"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert result.stdout.strip() == ""


def test_the_client_can_be_imported_after_the_protobuf_module_was_loaded() -> None:
    script = (
        "from specdeploy.adapters.triton_config import parse_model_config as p\n"
        "c = p('name: \"leaf\"', 'leaf/config.pbtxt'); import tritonclient.grpc\n"
        "from tritonclient.grpc.model_config_pb2 import ModelConfig\n"
        "ModelConfig().MergeFromString(c.SerializeToString())"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)


def test_the_templates_of_a_wheel_win_over_those_of_a_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "specdeploy" / "adapters" / "templates.py"
    monkeypatch.setattr(templates, "__file__", str(module))
    with pytest.raises(ArtifactError, match="templates are missing"):
        template_root()
    checkout = tmp_path / "templates"
    checkout.mkdir()
    assert template_root() == checkout
    packaged = tmp_path / "specdeploy" / "templates"
    packaged.mkdir(parents=True)
    assert template_root() == packaged


def test_only_parameters_that_are_absolute_paths_count_as_paths() -> None:
    text = """name: "leaf"
    parameters: { key: "a" value: { string_value: "/x/y" } }
    parameters: { key: "b" value: { string_value: "x/y" } }"""
    config = triton_config.parse_model_config(text, "leaf/config.pbtxt")
    assert triton_config.absolute_paths(config) == ["/x/y"]
