"""One line of flow: a module imports only from its left, and every edge to the outside is in one place."""

import ast
from pathlib import Path

import pytest

import arf_dask

# From left to right. The lines are for reading only; within a line the order counts too.
FLOW = [
    *("errors", "seeds", "marginals", "matching", "progress", "tasks", "cluster", "frames", "parts"),
    *("axis", "templates", "template_learning", "keys"),
    *("bins", "schema", "profile", "key_survey", "survey", "encode"),
    *("bundles", "order", "segments", "steps", "plan", "infer", "options"),
    *("forest", "adversary", "pruning", "forde", "leaf_sums"),
    *("tables", "smoothing", "parameters"),
    *("readings", "conditions", "leaves", "evidence", "pairs", "query", "density", "answers"),
    *("forge", "conditional", "completion", "impute", "sampling"),
    *("facts", "schema_checks", "validation", "layout", "storage"),
    *("stores", "parquet", "manifest", "sink"),
    *("model", "api", "words", "inspection", "delivery", "cli", "__main__", "__init__"),
]
MODULES = {path.stem: path for path in Path(arf_dask.__file__).parent.glob("*.py")}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}

# Where each of these may be imported; everywhere else it may not.
EDGES = {
    "sklearn": {"forest"},
    "dask": {"cluster", "frames"},
    "distributed": {"cluster"},
    "fsspec": {"stores"},
    "click": {"cli"},
    "scipy": {"marginals", "matching", "smoothing", "query"},
    "pickle": set(),
    "cPickle": set(),
    "marshal": set(),
    "shelve": set(),
    "dill": set(),
    "joblib": set(),
    "cloudpickle": set(),
    "lightgbm": set(),
}


def imported(tree: ast.AST) -> list[str]:
    """Every module named in an import statement, also inside functions."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            names.append(node.module or "")
            if node.module == "arf_dask":
                names += [f"arf_dask.{alias.name}" for alias in node.names]
    return names


def at_the_top(tree: ast.Module) -> list[str]:
    outside = ast.Module([node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.ClassDef)], [])
    return imported(outside)


def test_every_module_has_its_place_in_the_flow():
    assert sorted(FLOW) == sorted(MODULES)
    assert len(FLOW) == len(set(FLOW))


@pytest.mark.parametrize("module", FLOW)
def test_a_module_imports_only_from_its_left(module):
    left = FLOW[: FLOW.index(module)]
    ours = [name.split(".")[1] for name in imported(TREES[module]) if name.startswith("arf_dask.")]
    assert [name for name in ours if name not in left] == []


@pytest.mark.parametrize("package", EDGES)
def test_every_edge_to_the_outside_is_in_one_place(package):
    users = {name for name, tree in TREES.items() if package in {i.split(".")[0] for i in imported(tree)}}
    assert users <= EDGES[package]


def test_dask_frames_are_imported_only_when_one_comes_in():
    names = imported(TREES["frames"])
    assert [name for name in names if name.split(".")[0] == "dask"] == ["dask.dataframe"]
    assert not [name for name in at_the_top(TREES["frames"]) if name.split(".")[0] in ("dask", "pandas")]


@pytest.mark.parametrize("module", sorted(MODULES))
def test_no_private_names_of_other_packages(module):
    private = [name for name in imported(TREES[module]) if any(part.startswith("_") for part in name.split("."))]
    assert [name for name in private if name != "__future__"] == []


@pytest.mark.parametrize("module", sorted(MODULES))
def test_nothing_prints_evaluates_or_touches_global_randomness(module):
    called = [ast.unparse(node.func) for node in ast.walk(TREES[module]) if isinstance(node, ast.Call)]
    forbidden = {"print", "eval", "exec", "np.random.seed", "random.seed", "np.random.default_rng", "np.load"}
    assert [name for name in called if name in forbidden] == []


@pytest.mark.parametrize("module", sorted(MODULES))
def test_no_loops_over_rows(module):
    attributes = {node.attr for node in ast.walk(TREES[module]) if isinstance(node, ast.Attribute)}
    assert attributes & {"iter_rows", "map_elements", "iterrows", "itertuples", "iter_slices"} == set()


@pytest.mark.parametrize("module", sorted(MODULES))
def test_every_module_says_what_it_is_for(module):
    assert ast.get_docstring(TREES[module])
