"""What `pip install lrbs` brings: a package that learns, typed, without the service's packages."""

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from importlib.metadata import distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
SCRIPT = """\
from lrbs import Client, Labels, LowRankBilinear, __version__, make_low_rank_pairs

data = make_low_rank_pairs(30, 30, random_state=0)
model = LowRankBilinear(alpha_fraction=0.1)
model.fit(data.X, data.Z, Labels(data.x_labels, data.z_labels))
scores = model.similarity(data.X, data.Z)
best: int = scores[0].argmax().item()
rank: int = model.rank_
print(__version__, best >= 0, rank > 0)


def first(client: Client) -> str:
    return client.search("sample", "text", "image", text="boats").hits[0].id
"""
SERVICE = ["fastapi", "starlette", "uvicorn", "sqlalchemy", "faiss", "pydantic", "typer"]


def required() -> set[str]:
    """Names of all packages that the base install brings."""
    names: set[str] = set()
    waiting = ["lrbs"]
    while waiting:
        for text in distribution(waiting.pop()).requires or ():
            requirement = Requirement(text)
            is_needed = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            key = canonicalize_name(requirement.name)
            if is_needed and key not in names:
                names.add(key)
                waiting.append(requirement.name)
    return names


def test_each_version_that_is_pinned_runs_on_the_oldest_python() -> None:
    (oldest,) = SpecifierSet(distribution("lrbs").metadata["Requires-Python"])
    for each in distributions():
        allowed = SpecifierSet(each.metadata.get("Requires-Python") or "")
        assert allowed.contains(f"{oldest.version}.0"), f"{each.name} {each.version} needs Python {allowed}"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment of the wheel and what it brings, in the versions of the tests."""
    folder = tmp_path_factory.mktemp("package")
    source = folder / "source"
    for name in ("app", "migrations", "solver"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("LICENSE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", str(source), "--no-deps", "--no-build-isolation", "-q"]
    subprocess.run([*command, "-w", str(folder)], check=True, capture_output=True)
    (wheel,) = folder.glob("lrbs-*.whl")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    for package in required():
        packages = Path(distribution(package).locate_file("")).resolve()
        tops = {file.parts[0] for file in distribution(package).files or ()}
        for top in tops - {"..", "__pycache__"}:
            (site / top).symlink_to(packages / top)
    return folder / "venv" / "bin" / "python"


@pytest.fixture
def run(installed: Path, tmp_path: Path) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """Run a program in that environment."""

    def run_there(program: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(installed), "-I", "-c", program], cwd=tmp_path, capture_output=True, text=True
        )

    return run_there


def test_the_base_install_learns(run: Callable[[str], subprocess.CompletedProcess[str]]) -> None:
    done = run(
        f"from importlib.util import find_spec; print([*map(find_spec, {SERVICE})])\n{SCRIPT}\n"
        "import lrbs; print(lrbs.__file__)\nfor name in lrbs.__all__: getattr(lrbs, name)\n"
        "print(len(dir(lrbs)))\nlrbs.nothing"
    )
    assert "has no attribute 'nothing'" in done.stderr, done.stderr
    service, learned, file, n_names = done.stdout.splitlines()
    assert service == str([None] * len(SERVICE))
    assert learned == f"{distribution('lrbs').version} True True"
    assert "site-packages" in file
    assert int(n_names) > 100


def test_importing_it_loads_neither_learning_nor_service(
    run: Callable[[str], subprocess.CompletedProcess[str]],
) -> None:
    done = run("import sys, lrbs; print(sorted({'sklearn', 'matplotlib', 'app'} & set(sys.modules)))")
    assert done.stdout == "[]\n", done.stderr


def test_commands_say_what_they_need(run: Callable[[str], subprocess.CompletedProcess[str]]) -> None:
    done = run("from app.cli.__main__ import main; main()")
    assert done.returncode == 1
    assert "the commands need: pip install 'lrbs[serve]'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_script_that_uses_it_has_its_types(installed: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT + "reveal_type(model)\nwrong: str = model.rank_\n")
    command = [sys.executable, "-m", "mypy", "--python-executable", str(installed), "--config-file="]
    command += ["--cache-dir", os.devnull]  # to write a cache costs a tenth of the time
    done = subprocess.run([*command, "script.py"], cwd=tmp_path, capture_output=True, text=True)
    n_lines = SCRIPT.count("\n")
    assert done.stdout.splitlines()[:-1] == [
        f'script.py:{n_lines + 1}: note: Revealed type is "solver.bilinear.estimator.LowRankBilinear"',
        f'script.py:{n_lines + 2}: error: Incompatible types in assignment (expression has type "int", '
        'variable has type "str")  [assignment]',
    ], done.stdout + done.stderr
