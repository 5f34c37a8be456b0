"""Imports go one way: folders import only from folders before them, and other libraries only where they are wrapped."""

import ast
import pkgutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import arf_dask

ROOT = Path(arf_dask.__file__).parent
# A folder or top-level module may import from those before it, and from itself.
ORDER = [
    "typing",
    "errors",
    "options",
    "runtime",
    "stats",
    "data",
    "rules",
    "schema",
    "refinement",
    "forest",
    "inference",
    "storage",
    "reporting",
    "release",
    "training",
    "privacy",
    "relational",
    "model_tables",
    "queries",
    "sinks",
    "model",
    "table_models",
    "single_files",
    "reports",
    "api",
    "tables",
    "synthesis",
    "sklearn",
    "namespace",
    "integrations",
    "__init__",
    "cli",
    "__main__",
]
FILES = {path.relative_to(ROOT).with_suffix("").as_posix(): path for path in ROOT.rglob("*.py")}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in FILES.items()}

# The modules in which each of these may be imported.
EDGES = {
    "sklearn": {"forest/growing", "refinement/boosting", "reporting/learners", "sklearn"},
    "dask": {"runtime/cluster", "runtime/task_window", "data/frames", "inference/dask_rows"},
    "distributed": {"runtime/cluster", "runtime/task_window"},
    "fsspec": {"storage/stores", "data/file_copies"},
    "narwhals": {"data/frames"},
    "prefect": {"integrations/prefect"},
    "dagster": {"integrations/dagster"},
    "airflow": {"integrations/airflow"},
    "deltalake": {"storage/delta"},
    "pyiceberg": {"storage/iceberg"},
    "opendp": {"privacy/noise"},
    "click": {"cli/inputs", "cli/main", "cli/options", "cli/outcome", "cli/questions", "cli/tables", "cli/values"},
    "scipy": {
        "stats/truncated_normal",
        "stats/moment_matching",
        "stats/table_smoothing",
        "forest/smoothing",
        "inference/posteriors",
    },
    "pickle": set(),
    "cPickle": set(),
    "marshal": set(),
    "shelve": set(),
    "dill": set(),
    "joblib": set(),
    "cloudpickle": set(),
    "lightgbm": set(),
}
# Modules that only learning needs: nothing that uses a finished model imports them.
LEARNING = {
    "data/key_learning",
    "data/column_summary",
    "data/profile",
    "data/profiling",
    "data/string_key_learning",
    "data/template_learning",
    "rules/building",
    "rules/declaring",
    "rules/finding",
    "rules/learning",
    "rules/number_search",
    "rules/order_search",
    "rules/part_search",
    "rules/spikes",
    "rules/product_search",
    "rules/scoring",
    "rules/selection",
    "rules/verification",
    "data/value_counts",
    "data/bins",
    "data/opening",
    "rules/transforms/gap_search",
    "refinement/boosting",
    "refinement/learning",
    "refinement/pruning",
    "schema/bundles",
    "schema/discrete",
    "schema/draft",
    "schema/interval_cuts",
    "schema/learning",
    "schema/level_order",
    "schema/near_functions",
    "schema/step_functions",
    "schema/unseen_combinations",
    "forest/adversary",
    "forest/dependence_learning",
    "forest/growing",
    "forest/leaf_fitting",
    "forest/leaf_moments",
    "forest/leaf_sums",
    "forest/pruning",
    "forest/state_counts",
}


def folder_of(module: Any) -> Any:
    return module.split("/")[0]


@cache
def imported(tree: Any) -> Any:
    """Every module named in an import statement, also inside functions."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            names.append(node.module or "")
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def own_imports(module: Any) -> Any:
    """The modules of this package that a module imports, as 'folder/module'."""
    parts = [name.split(".")[1:] for name in imported(TREES[module]) if name.split(".")[0] == "arf_dask"]
    found = {"/".join(part[:size]) for part in parts for size in (1, 2) if "/".join(part[:size]) in FILES}
    return found - {module}


def needs(modules: Any) -> Any:
    """These modules and all that they import, directly or not."""
    found, new = set(), set(modules)
    while new:
        found |= new
        new = {name for module in new for name in own_imports(module)} - found
    return found


def at_the_top(tree: Any) -> Any:
    return imported(
        ast.Module([node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.ClassDef)], [])
    )


def test_every_folder_has_its_place_in_the_order() -> None:
    assert sorted({folder_of(module) for module in FILES}) == sorted(ORDER)


@pytest.mark.parametrize("folder", ORDER)
def test_a_folder_imports_only_from_folders_before_it(folder: Any) -> None:
    allowed = ORDER[: ORDER.index(folder) + 1]
    edges = {(m, name) for m in FILES if folder_of(m) == folder for name in own_imports(m)}
    assert sorted(edge for edge in edges if folder_of(edge[1]) not in allowed) == []


def test_modules_do_not_import_each_other_in_circles() -> None:
    left = {module: own_imports(module) for module in FILES}
    while left:
        free = {module for module, wanted in left.items() if not wanted & set(left)}
        assert free, f"a circle among {sorted(left)}"
        left = {module: wanted for module, wanted in left.items() if module not in free}


@pytest.mark.parametrize("folder", ["inference", "storage"])
def test_using_a_model_needs_nothing_that_only_learning_needs(folder: Any) -> None:
    assert sorted(needs(module for module in FILES if folder_of(module) == folder) & LEARNING) == []


@pytest.mark.parametrize("package", EDGES)
def test_every_edge_to_the_outside_is_in_one_place(package: Any) -> None:
    users = {name for name, tree in TREES.items() if package in {i.split(".")[0] for i in imported(tree)}}
    assert users <= EDGES[package]


def test_dask_frames_are_imported_only_when_one_comes_in() -> None:
    names = {name for name in imported(TREES["data/frames"]) if name.split(".")[0] == "dask"}
    assert names == {"dask.dataframe"}
    assert not [name for name in at_the_top(TREES["data/frames"]) if name.split(".")[0] in ("dask", "pandas")]


def test_no_public_name_hides_a_module() -> None:
    modules = {module.name for module in pkgutil.iter_modules(arf_dask.__path__)}
    assert modules & set(arf_dask.__all__) == set()


@pytest.mark.parametrize("module", sorted(FILES))
def test_no_private_names_of_other_packages(module: Any) -> None:
    private = [name for name in imported(TREES[module]) if any(part.startswith("_") for part in name.split("."))]
    assert [name for name in private if not name.startswith("__future__") and name != "arf_dask.__version__"] == []


@pytest.mark.parametrize("module", sorted(FILES))
def test_nothing_prints_evaluates_or_touches_global_randomness(module: Any) -> None:
    called = [ast.unparse(node.func) for node in ast.walk(TREES[module]) if isinstance(node, ast.Call)]
    forbidden = {"print", "eval", "exec", "np.random.seed", "random.seed", "np.random.default_rng", "np.load"}
    assert [name for name in called if name in forbidden] == []


@pytest.mark.parametrize("module", sorted(FILES))
def test_no_loops_over_rows(module: Any) -> None:
    attributes = {node.attr for node in ast.walk(TREES[module]) if isinstance(node, ast.Attribute)}
    assert attributes & {"iter_rows", "map_elements", "iterrows", "itertuples", "iter_slices"} == set()


@pytest.mark.parametrize("module", sorted(FILES))
def test_every_module_says_what_it_is_for(module: Any) -> None:
    assert ast.get_docstring(TREES[module])


def test_importing_the_package_loads_nothing_that_only_some_calls_need() -> None:
    heavy = ["sklearn", "pandas", "dask", "distributed", "scipy.stats", "matplotlib"]
    script = f"import sys, arf_dask; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
