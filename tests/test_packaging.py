"""What pyproject.toml ships is what the folders hold."""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_every_subpackage_is_listed_and_nothing_else() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    setuptools = project["tool"]["setuptools"]
    mapping = setuptools["package-dir"]
    found = set()
    for package, folder in mapping.items():
        for init in (ROOT / folder).rglob("__init__.py"):
            parts = init.parent.relative_to(ROOT / folder).parts
            if not any(part in ("reference", "gpu", "proofs", "reports") for part in parts):
                found.add(".".join((package, *parts)))
    assert found == set(setuptools["packages"])


def test_the_links_point_at_the_folders() -> None:
    for name in ("reference", "gpu", "proofs", "reports"):
        assert (ROOT / "rheocheck" / name).resolve() == ROOT / name


def test_importing_rheocheck_loads_no_torch() -> None:
    code = (
        "import sys, rheocheck, rheocheck.reference; "
        "heavy = {'torch', 'transformers', 'matplotlib', 'scipy'} & set(sys.modules); "
        "sys.exit(f'imported {sorted(heavy)}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_file_names_a_machine_path_or_registry_host() -> None:
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:  # a source archive
        return
    forbidden = ("/" + "work/", "pypi" + ".org", "/" + "opt/")
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.is_symlink() or path.suffix not in (".py", ".md", ".toml", ".txt", ".html", ""):
            continue
        text = path.read_text(encoding="utf-8", errors="ignore")
        assert not any(word in text for word in forbidden), name
