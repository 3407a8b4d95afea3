"""What surrounds the code: the site of all pages, the changelog, the citation, continuous
integration.
"""

import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib

import pytest
import yaml
from applications import ROOT
from faults.harness import wait_until

import aiayn
from aiayn.config.evaluate import EvaluateConfig
from aiayn.config.rules import options_of
from aiayn.config.schema import Config


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built strictly: a warning is an error."""
    for module in ("latex2mathml", "material", "mkdocs", "mkdocstrings_handlers.python"):
        pytest.importorskip(module, reason="pip install -e '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    # No proxy answers there: what needed the network would fail.
    nowhere = {
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
        "NO_MKDOCS_2_WARNING": "1",
    }
    built = subprocess.run(
        command, cwd=ROOT, env=os.environ | nowhere, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    return folder


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://example.org/team/aiayn.git", "https://example.org/team/aiayn"),
        ("https://user:secret@example.org/team/aiayn", "https://example.org/team/aiayn"),
        ("git@example.org:team/aiayn.git", "https://example.org/team/aiayn"),
        ("ssh://git@example.org:22/team/aiayn.git", "https://example.org/team/aiayn"),
        ("/srv/git/aiayn.git", None),
        ("../aiayn", None),
        ("", None),
    ],
)
def test_the_site_links_the_repository_that_was_cloned_without_a_password(remote, address):
    pytest.importorskip("latex2mathml", reason="pip install -e '.[docs]'")
    pytest.importorskip("mkdocs", reason="pip install -e '.[docs]'")
    assert runpy.run_path(str(ROOT / "docs/site.py"))["repository_address"](remote) == address


def test_the_site_has_every_page_and_loads_nothing_from_other_places(site):
    for page in [*ROOT.glob("docs/*.md"), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        assert (site / f"{page.stem}.html").exists(), page
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r"<(?:script|img|link)[^>]+(?:src|href)=[\"']?(https?:[^\"' >]+)",
            page.read_text("utf-8"),
        )
        assert loaded == [], page


def test_table_heads_of_the_site_have_a_scope_and_pictures_a_text(site):
    for page in site.rglob("*.html"):
        html = page.read_text("utf-8")
        assert all("scope=" in head for head in re.findall(r"<th[ >][^>]*>?", html)), page
        assert all("alt=" in picture for picture in re.findall(r"<img [^>]*>", html)), page


def test_python_m_aiayn_is_the_command():
    said = subprocess.run(
        [sys.executable, "-m", "aiayn", "--version"], capture_output=True, text=True, check=True
    )

    assert said.stdout == f"aiayn {aiayn.__version__}\n"


def test_the_reference_has_every_module_and_links_from_the_paper_lead_there(site):
    pages = {path.stem: path.read_text("utf-8") for path in (site / "reference").glob("*.html")}
    for path in (ROOT / "src/aiayn").rglob("*.py"):
        if path.read_text("utf-8").strip():
            parts = [
                part
                for part in path.relative_to(ROOT / "src").with_suffix("").parts
                if part != "__init__"
            ]
            name = ".".join(parts)
            room = (
                path.relative_to(ROOT / "src").parts[1]
                if len(path.relative_to(ROOT / "src").parts) > 2
                else "aiayn"
            )
            assert f'id="{name}"' in pages[room], name
    reading = (site / "reading.html").read_text("utf-8")
    for name in ("attention", "attention_weights", "MultiHeadAttention.attend"):
        assert f'href="reference/model.html#aiayn.model.attention.{name}"' in reading
    assert 'href="reference/model.html#aiayn.model.attention"' not in reading, "of a module"


def test_the_site_sets_formulas_as_formulas_and_has_an_anchor_for_each_option(site):
    n_formulas = (ROOT / "docs/reading.md").read_text("utf-8").count("$") // 2
    assert (site / "reading.html").read_text("utf-8").count("<math ") == n_formulas > 5
    options = (site / "options.html").read_text("utf-8")
    names = {*options_of(Config), *options_of(EvaluateConfig)}
    assert [name for name in sorted(names) if f'id="{name}"' not in options] == []


@pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False), (1280, True)])
def test_the_site_fits_its_window_with_whole_names_and_words_that_are_read(
    site, browser, width, dark
):
    under_the_button = """[...document.querySelectorAll('pre:has(.md-code__nav)')].filter(pre => {
        const button = pre.querySelector('.md-code__nav').getBoundingClientRect();
        return pre.querySelector('code').getBoundingClientRect().right > button.left;
    }).map(pre => pre.innerText)"""
    broken = """[...document.querySelectorAll('td:first-child code')]
        .filter(e => e.getClientRects().length > 1).map(e => e.textContent)"""
    names = """[...document.querySelectorAll('.md-header__topic, .md-nav--primary > *')].filter(
        e => e.checkVisibility() && e.innerText.trim().split('\\n')[0] === 'aiayn').length"""
    for page in ("index", "quickstart", "options", "reading", "sweeps"):
        browser.open((site / f"{page}.html").as_uri(), width=width, height=1000, dark=dark)
        wait_until(lambda: browser.run("!!document.querySelector('[data-md-component]')"))
        assert browser.run("document.documentElement.scrollWidth") <= width, page
        assert browser.run(under_the_button) == [], page
        assert browser.run(broken) == [], page
        assert browser.faint_words() == [], page
        if width > 1220:  # the navigation is beside the page, and not in a drawer
            assert browser.run(names) == 1, page
    browser.open(f"{(site / 'options.html').as_uri()}#optim.peak_lr", width=width, dark=dark)
    place = "document.getElementById('optim.peak_lr').getBoundingClientRect().top"
    wait_until(lambda: 0 < browser.run(place) < 300)


def test_changelog_and_citation_name_the_version():
    newest = re.search(
        r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
    )
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))

    assert newest.groups() == (aiayn.__version__, str(citation["date-released"]))
    assert str(citation["version"]) == aiayn.__version__
    assert (citation["cff-version"], citation["license"]) == ("1.2.0", "MIT")


def test_the_badges_name_the_python_versions_the_licence_and_how_many_tests_there_are():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    badges = {
        name: (ROOT / f"docs/images/badge_{name}.svg").read_text(encoding="utf-8")
        for name in ("python", "licence", "tests")
    }

    assert f"<title>python: {versions[0]} to {versions[-1]}</title>" in badges["python"]
    assert project["requires-python"] == f">={versions[0]}"
    assert f"<title>licence: {project['license']}</title>" in badges["licence"]
    files = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert sum(len(re.findall(r"^ *def test_", text, re.MULTILINE)) for text in files) > 1500
    assert "<title>tests: over 1,500</title>" in badges["tests"]


def test_continuous_integration_and_commits_run_what_developers_run():
    jobs = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text("utf-8"))["jobs"]
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"][0][
        "hooks"
    ]
    python = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
        "requires-python"
    ]

    assert {step["run"] for job in jobs.values() for step in job["steps"] if "run" in step} == {
        "make lint",
        ".ci/run",
        "make docs",
    }
    nightly = yaml.safe_load((ROOT / ".github/workflows/nightly.yml").read_text("utf-8"))["jobs"][
        "test-all"
    ]
    assert nightly["steps"][-1]["run"] == ".ci/run test-all"
    workflows = "".join(
        path.read_text("utf-8") for path in (ROOT / ".github/workflows").glob("*.yml")
    )
    uses = re.findall(r"uses: \S+@(\S+) # v[\d.]+\n", workflows)
    assert len(uses) == workflows.count("uses:")
    assert all(re.fullmatch("[0-9a-f]{40}", commit) for commit in uses)
    assert python == f">={min(jobs['test']['strategy']['matrix']['python'])}"
    assert [hook["entry"] for hook in hooks] == ["make lint"]


@pytest.mark.parametrize(
    ("programs", "options", "torch"),
    [
        ((), (), "for cpu, about 0.2 GB"),
        (("nvidia-smi",), (), "for cuda, about 3 GB"),
        ((), ("TORCH=cuda",), "for cuda, about 3 GB"),
        (("nvidia-smi", "uv"), ("TORCH=cpu",), "for cpu, about 0.2 GB"),
    ],
)
def test_make_install_takes_the_build_of_torch_that_fits_the_machine_and_says_its_size(
    tmp_path, programs, options, torch
):
    for name in ("sh", "uname", "date", "make", "git"):
        (tmp_path / name).symlink_to(shutil.which(name))
    for name in programs:
        (tmp_path / name).symlink_to(shutil.which("true"))
    said = subprocess.run(
        ["make", "-n", "-W", "pyproject.toml", "install", *options],
        cwd=ROOT,
        env=os.environ | {"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert torch in said
    installs = [line for line in said.split("\n") if "pip install" in line]
    assert all(
        line.startswith("uv pip" if "uv" in programs else ".venv/bin/python -m pip")
        for line in installs
    )
    with_cpu_build = "--torch-backend=cpu" if "uv" in programs else "download.pytorch.org/whl/cpu"
    assert (with_cpu_build in installs[0]) == ("for cpu" in torch)


def test_types_are_checked_everywhere_and_ignored_only_where_the_reason_is_said():
    settings = (ROOT / "pyproject.toml").read_text("utf-8")
    assert tomllib.loads(settings)["tool"]["basedpyright"]["include"] == ["src"]
    reasons = settings[settings.index("[tool.basedpyright]") : settings.index("include = ")]
    for file in (ROOT / "src").rglob("*.py"):
        ignored = re.findall(r"#\s*(?:type|pyright):\s*(\S*)", file.read_text("utf-8"))
        assert all(each.startswith("ignore[") for each in ignored), file
        assert not ignored or file.relative_to(ROOT / "src/aiayn").as_posix() in reasons, file
    assert (ROOT / "src/aiayn/py.typed").exists()
