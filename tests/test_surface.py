"""The public names and the command line are frozen: a change to either shows here, as a diff of this file."""

import importlib.resources
import importlib.util
import inspect

import click
import pytest

import detdata

NAMES = {
    # orders
    "BlockShuffle", "Concat", "GroupShuffle", "Mixture", "Order", "Sequential", "Shuffle", "Subset", "TorchShuffle",
    "Weighted", "class_balanced", "split", "split_of",
    # plans
    "Batch", "BucketPlan", "EveryEpoch", "PackPlan", "Packed", "PackedDataset", "Phases", "Plan", "PlanMixture",
    "TokenDocuments", "from_spec", "linear_ramp", "per_source", "ramped", "read_packed", "register_format",
    # keys
    "derive_seed", "sample_rng",
    # torch side
    "BatchSampler", "DistributedSampler", "Loader", "Progress", "Topology", "current_sample", "worker_init_fn",
    # streams
    "Resumable", "Resumption", "Stream", "StreamBatch", "StreamPosition",
    # checkpoints
    "CheckpointNotSaved", "Checkpointer", "Preempted", "SavePolicy", "SaveReport", "diff_checkpoints",
    "list_checkpoints", "verify_checkpoint",
    # dataset versions
    "HashProgress", "Manifest", "Report", "hash_dataset", "merge_manifests",
    # corpora
    "Converted", "Corpus", "IndexProgress", "Indexed", "convert_corpus", "index_corpus", "open_corpus",
    "register_corpus_format",
    # errors
    "CorpusError", "CorpusUnreadable", "CorpusWarning",
    "CheckpointBroken", "CheckpointMismatch", "DatasetError", "DatasetWarning", "DetdataError", "Difference",
    "StateMismatch", "UnknownFormat",
}  # fmt: skip

COMMANDS = {
    "detdata": {"--help", "--version", "-h"},
    "detdata hash": {
        "--algorithm", "--cache", "--content", "--exclude", "--help", "--include", "--json", "--no-cache", "--output",
        "--part", "--piece-size", "--quick", "--quiet", "--symlinks", "--workers", "-a", "-h", "-o", "-q", "PATHS",
    },
    "detdata verify": {
        "--allow-growth", "--cache", "--compare-to", "--help", "--json", "--no-cache", "--quick", "--quiet", "--root",
        "--summary", "--workers", "-h", "-q", "MANIFEST",
    },
    "detdata diff": {
        "--algorithm", "--cache", "--content", "--exclude", "--help", "--include", "--json", "--no-cache",
        "--piece-size", "--quick", "--quiet", "--summary", "--symlinks", "--workers", "-a", "-h", "-q", "OLD", "NEW",
    },
    "detdata merge": {"--help", "--json", "--output", "--quiet", "-h", "-o", "-q", "PARTS"},
    "detdata index": {
        "--check", "--dtype", "--format", "--help", "--in", "--index-folder", "--json", "--quiet", "--rows-per-block",
        "--seq-len", "--set", "--skip-list", "--workers", "-h", "-q", "PATHS",
    },
    "detdata convert": {
        "--columns", "--dtype", "--format", "--help", "--index-folder", "--json", "--json-column", "--output",
        "--part-size", "--quiet", "--rows-per-batch", "--rows-per-block", "--seq-len", "--set", "-h", "-o", "-q",
        "PATHS",
    },
    "detdata ckpt": {"--help", "-h"},
    "detdata ckpt list": {"--help", "--json", "--quick", "--quiet", "-h", "-q", "ROOT"},
    "detdata ckpt show": {"--help", "--json", "--quiet", "--tensors", "-h", "-q", "PATH"},
    "detdata ckpt verify": {"--help", "--json", "--quiet", "-h", "-q", "PATHS"},
    "detdata ckpt diff": {"--help", "--json", "--quiet", "-h", "-q", "A", "B"},
    "detdata plan": {"--help", "-h"},
    "detdata plan show": {
        "--all", "--help", "--json", "--micro-step", "--micro-steps", "--quiet", "--rank", "--step", "--steps",
        "--table", "--world-size", "-h", "-q", "SPEC",
    },
    "detdata plan when": {"--epoch", "--help", "--json", "--quiet", "--table", "-h", "-q", "IDS", "SPEC"},
    "detdata plan digest": {"--help", "--json", "--quiet", "--table", "-h", "-q", "FIRST", "LAST", "SPEC"},
    "detdata demo": {"--corpus", "--fault", "--help", "--json", "--kill-step", "--out", "--seed", "--small", "-h"},
}  # fmt: skip


def test_the_public_names_are_these():
    assert len(detdata.__all__) == len(set(detdata.__all__))
    assert set(detdata.__all__) == NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_public_name_resolves_and_is_listed(name):
    assert getattr(detdata, name) is not None
    assert name in dir(detdata)


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        detdata.no_such_name


def public_members(name):
    """(dotted name, object) of a public class or function, and of the methods and properties it defines itself."""
    thing = getattr(detdata, name)
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        return []
    members = [(name, thing)]
    if inspect.isclass(thing):
        for attribute, value in vars(thing).items():
            function = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
            if not attribute.startswith("_") and (inspect.isfunction(function) or isinstance(function, property)):
                members.append((f"{name}.{attribute}", function))
    return members


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_public_name_has_a_docstring_of_its_own(name):
    bare = [
        dotted
        for dotted, thing in public_members(name)
        if not (vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__)
    ]

    assert bare == []


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_public_class_or_function_has_an_example(name):
    members = public_members(name)
    first = members[0][1] if members else None
    caught = inspect.isclass(first) and (issubclass(first, Exception) or first.__module__ == "detdata.errors")
    if first is not None and not caught:  # errors are caught, not made
        assert any(">>> " in (thing.__doc__ or "") for _, thing in members)


def test_the_version_is_that_of_the_package():
    from importlib.metadata import PackageNotFoundError, version

    try:
        assert detdata.__version__ == version("detdata")
    except PackageNotFoundError:
        pytest.skip("detdata is not installed, only on the path")


def options(command, name, parent=None):
    """{full command name: its options and arguments} of a command and all below it."""
    context = click.Context(command, info_name=name, parent=parent, **command.context_settings)
    words = {word for parameter in command.get_params(context) for word in described(parameter)}
    table = {context.command_path: words}
    if isinstance(command, click.Group):
        for sub in command.list_commands(context):
            table |= options(command.get_command(context, sub), sub, context)
    return table


def described(parameter):
    if isinstance(parameter, click.Argument):
        return [parameter.human_readable_name]
    return [*parameter.opts, *parameter.secondary_opts]


def test_the_commands_and_their_options_are_these():
    from detdata import cli

    assert options(cli.main, "detdata") == COMMANDS


def test_the_package_is_marked_as_typed():
    [folder] = importlib.util.find_spec("detdata").submodule_search_locations

    assert (importlib.util.find_spec("detdata").origin or "").startswith(folder)
    assert (importlib.resources.files("detdata") / "py.typed").is_file()
