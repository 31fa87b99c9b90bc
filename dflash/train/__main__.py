"""One door to training a drafter: prompts, regenerate, fit, export."""

import argparse
import importlib
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from dflash.cache_folder import cache_dir_from
from dflash.config import EMBEDDED_MODEL
from dflash.errors import CheckpointError, ConfigError, EngineError
from dflash.models.checkpoint import Checkpoint, open_checkpoint
from dflash.train.bounds import check_within
from dflash.train.device import training_device
from dflash.train.export import export_drafter
from dflash.train.fit import Outlets, fit
from dflash.train.folders import check_apart, check_drafter_folder, check_no_file
from dflash.train.frozen import FrozenTarget, frozen_target, indispensable_ids
from dflash.train.model import Drafter
from dflash.train.mtp_model import MtpHead
from dflash.train.mtp_shape import MtpShape
from dflash.train.mtp_trainer import MtpTrainer
from dflash.train.plan import Plan
from dflash.train.resume import check_resumed, check_sequences, check_target
from dflash.train.run_state import load_state
from dflash.train.sequences import SequenceFolder
from dflash.train.shape_options import chosen, shape_of
from dflash.train.shortlist import shortlist
from dflash.train.stored import StoredSequences
from dflash.train.trainer import Trainer

# Each of these verbs has a module with its own arguments.
_OTHER_VERBS = {"prompts": "dflash.train.prompts.__main__", "regenerate": "dflash.train.regenerate"}
_DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] in _OTHER_VERBS:
        return importlib.import_module(_OTHER_VERBS[arguments[0]]).main(arguments[1:])
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        options.run_verb(options)
    except EngineError as error:
        logging.getLogger(__name__).error("%s", error)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dflashctl train", description=__doc__)
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    for verb in _OTHER_VERBS:
        verbs.add_parser(verb, help="has its own arguments: add --help", add_help=False)
    _add_fit(verbs.add_parser("fit", help="train a drafter from stored sequences"))
    export = verbs.add_parser("export", help="write a run's drafter in the published format")
    export.add_argument("--run", type=Path, required=True, help="folder of the run")
    export.add_argument("--out", type=Path, required=True, help="folder to write")
    export.set_defaults(run_verb=_export)
    return parser


def _add_fit(fit_verb: argparse.ArgumentParser) -> None:
    add = fit_verb.add_argument
    add("--sequences", type=Path, required=True, help="folder of shards; it may still grow")
    add("--held-out", type=Path, required=True, help="folder of shards to measure on")
    add("--run", type=Path, required=True, help="folder of the run; goes on from its last state")
    add("--export", type=Path, help="folder of the drafter, rewritten with each saved state")
    add("--model", default=EMBEDDED_MODEL, help="the target, as engine.model names it")
    add("--drafter", choices=("dflash", "mtp"), default="dflash", help="what kind to train")
    add("--mask-token-id", type=int, help="an id that no text of the target holds, for dflash")
    length = fit_verb.add_mutually_exclusive_group(required=True)
    length.add_argument("--steps", type=int, help="length of the run in steps")
    length.add_argument("--minutes", type=float, help="length of the run in time")
    add("--seed", type=int, help="default 0")
    add("--layers", type=int, help="layers of a dflash drafter, default 2; mtp has one")
    add("--block-size", type=int, help="slots of a dflash block and its anchor, default 8")
    add("--draft-length", type=int, help="draft tokens of an mtp chain, default 3")
    add("--selector-rank", type=int, help="of a dflash drafter, default 32")
    add("--window", type=int, help="positions a layer looks back, default 512; train on more")
    add("--draft-vocab-size", type=int, help="ids it may draft, default 16384")
    add("--learning-rate", type=float, default=2e-3)
    add("--sequences-per-step", type=int, default=16)
    add("--anchors", type=int, default=32, help="most anchors of one sequence and step")
    add("--decay", type=float, help="weigh slots by exp(-(k-1)/decay), not by how likely reached")
    add(
        "--second-version-at",
        type=float,
        default=0.5,
        help="share of the run that trains v1; 1 for all of it",
    )
    add("--dtype", choices=sorted(_DTYPES), default="bfloat16", help="type to compute in")
    add(
        "--device",
        default="auto",
        help="cpu, cuda, cuda:0, ...; auto takes cuda where there is one",
    )
    add("--labels-only", action="store_true", help="do not learn the target's distributions")
    add("--save-s", type=float, default=120.0)
    add("--measure-s", type=float, default=300.0)
    add("--held-out-sequences", type=int, default=64, help="most of them that are measured")
    fit_verb.set_defaults(run_verb=_fit)


def _fit(options: argparse.Namespace) -> None:
    _check_folders(options)
    check_within("--held-out-sequences", options.held_out_sequences, 1)
    plan = _plan(options)
    outlets = Outlets(options.run, options.export, options.save_s, options.measure_s)
    device = training_device(options.device)
    checkpoint = open_checkpoint(options.model, cache_dir_from(None))
    taps = SequenceFolder(options.sequences).manifest().taps
    sequences = _stored("--sequences", options.sequences, checkpoint, taps)
    held_out = _stored("--held-out", options.held_out, checkpoint, taps)
    state = load_state(options.run)
    if state:
        check_target(state, options, checkpoint.fingerprint, taps)
        check_resumed(options, state)
        check_sequences(state, options.sequences, len(sequences))
        shape, ids = state.shape, state.shortlist
    else:
        shape = shape_of(checkpoint.config, taps, options)
        counts = sequences.response_counts(shape.vocab_size)
        ids = shortlist(counts, indispensable_ids(checkpoint), chosen(options, "draft_vocab_size"))
    last_tap = None if options.labels_only else shape.target_layer_ids[-1]
    target = frozen_target(checkpoint, ids, last_tap, _DTYPES[options.dtype], device)
    # Drawn on the CPU whatever the device: a seed means the same parameters everywhere.
    torch.manual_seed(plan.seed)
    drafter = MtpHead(shape) if isinstance(shape, MtpShape) else Drafter(shape)
    # The head was trained to read states of this scale.
    drafter.norm.weight.data.copy_(checkpoint.tensor("model.norm.weight"))
    trainer = _trainer(drafter.to(device), target, plan)
    if state:
        trainer.restore(state)
    fit(trainer, sequences, held_out.spread(options.held_out_sequences), outlets)


def _check_folders(options: argparse.Namespace) -> None:
    check_no_file("--run", options.run)
    writes = {"--run": options.run}
    if options.export:
        check_drafter_folder("--export", options.export)
        writes["--export"] = options.export
    check_apart(writes, {"--sequences": options.sequences, "--held-out": options.held_out})


def _trainer(drafter: Drafter | MtpHead, target: FrozenTarget, plan: Plan) -> Trainer:
    if isinstance(drafter, MtpHead):
        return MtpTrainer(drafter, target, plan)
    return Trainer(drafter, target, plan)


def _stored(
    option: str, folder: Path, checkpoint: Checkpoint, taps: tuple[int, ...]
) -> StoredSequences:
    """Return a folder's sequences, which must be this target's, of these taps, and some."""
    manifest = SequenceFolder(folder).manifest()
    if manifest.fingerprint != checkpoint.fingerprint:
        raise ConfigError(
            f"{option} {folder} was made by another checkpoint than --model names; name the model "
            f"that made it ({manifest.model})"
        )
    if manifest.taps != taps:
        raise ConfigError(
            f"{option} {folder} holds taps {manifest.taps}, --sequences holds {taps}; regenerate "
            "one of them with the --taps of the other"
        )
    sequences = StoredSequences(folder)
    if not len(sequences):
        raise ConfigError(
            f"{option} {folder} holds no answer of two tokens or more yet; regenerate a shard first"
        )
    return sequences


def _plan(options: argparse.Namespace) -> Plan:
    return Plan(
        seed=chosen(options, "seed"),
        learning_rate=options.learning_rate,
        sequences_per_step=options.sequences_per_step,
        anchors_per_sequence=options.anchors,
        decay=options.decay,
        second_version_at=options.second_version_at,
        steps=options.steps,
        minutes=options.minutes,
    )


def _export(options: argparse.Namespace) -> None:
    check_no_file("--run", options.run)
    check_apart({"--out": options.out}, {"--run": options.run})
    state = load_state(options.run)
    if state is None:
        raise CheckpointError(f"{options.run} holds no state of a run; name the folder of --run")
    export_drafter(state, options.out, "--out")


if __name__ == "__main__":
    sys.exit(main())
