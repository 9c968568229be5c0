"""The budget falls and never rises, and new docstrings in poor style are found in changed lines alone."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest
from budget import main, measured

OLD = '"""Of the old, what it says."""\n\nX = 1\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("mars_viz", "pages", "tests"):
        (tmp_path / name).mkdir()
    (tmp_path / "README.md").write_text("A project.\n")
    (tmp_path / "mars_viz/old.py").write_text(OLD)
    assert main(["--lower"], tmp_path) == 0
    return tmp_path


def commit(root: Path, *first: str) -> None:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    for arguments in filter(
        None, (first, ("add", "."), (*identity, "commit", "--quiet", "--allow-empty", "--message", "x"))
    ):
        subprocess.run(["git", *arguments], cwd=root, check=True)


def limits(root: Path) -> dict[str, float]:
    return tomllib.loads((root / "budget.toml").read_text())


def test_a_limit_falls_and_never_rises(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], project) == 0
    (project / "mars_viz/old.py").write_text(OLD + "Y = 2\n")
    assert main([], project) == 1
    assert "Python lines in mars_viz: 4 of 3" in capsys.readouterr().out
    main(["--lower"], project)
    assert limits(project)["Python lines in mars_viz"] == 3
    (project / "mars_viz/old.py").write_text("X = 1\n")
    assert main([], project) == 0
    assert "--lower" in capsys.readouterr().out
    main(["--lower"], project)
    assert limits(project)["Python lines in mars_viz"] == 1
    assert {value for name, value in limits(project).items() if "per 1,000" in name} == {0}


def test_rates_are_per_thousand_words_of_docstrings(project: Path) -> None:
    rates = {name: value for name, value in measured(project).items() if "per 1,000" in name and value}
    assert sorted(rates.values()) == [round(1000 / 6, 1)] * 3  # 'what it', 'says' and 'Of the' in six words


@pytest.mark.parametrize(
    ("added", "complaint"),
    [
        ('def f():\n    """Return 1."""\n', ""),
        ('def f():\n    """Return 1,\n    where it is told."""\n', "old.py:6: "),
        ('def f():\n    """Return `said`, a number\nof its own."""\n', ""),
        ('def f():\n    """The value."""\n', "old.py:5: "),
        ('class C:\n    @property\n    def f(self):\n        """The value."""\n', ""),
    ],
)
def test_only_changed_lines_are_flagged(
    project: Path, added: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    commit(project, "init", "--quiet")
    (project / "mars_viz/old.py").write_text(OLD + added)
    (project / "budget.toml").write_text("".join(f'"{name}" = 1e9\n' for name in limits(project)))
    for _ in range(2):  # not committed, then committed
        assert main([], project) == bool(complaint)
        printed = capsys.readouterr().out
        assert complaint in printed and "old.py:1:" not in printed
        commit(project)


def test_a_checkout_without_history_passes(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    commit(project, "init", "--quiet")
    assert main([], project) == 0
    shallow = tmp_path_factory.mktemp("shallow") / "clone"
    (project / "mars_viz/old.py").write_text(OLD + "# more\n")
    commit(project)
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", f"file://{project}", str(shallow)], check=True)
    main(["--lower"], shallow)
    (shallow / "budget.toml").write_text((shallow / "budget.toml").read_text().replace("= 3", "= 4"))
    assert main([], shallow) == 0
